// node driver.js URL QUEUE COUNT, behind the block of docs/clients.md: fails at COUNT messages, and declares each.
const amqp = require('amqplib');

class OutOfStock extends Error {
  constructor(message) { super(message); this.name = 'OutOfStock'; }
}

function handle(text) {
  throw new OutOfStock(`item ${text}: ${'none left '.repeat(100_000)}`);
}

async function main([url, queue, count]) {
  const connection = await amqp.connect(url);
  const channel = await connection.createChannel();
  const declareDeath = await deaths(connection);
  let left = Number(count);
  await new Promise((done) => {
    channel.consume(queue, async (message) => {
      try {
        handle(message.content.toString());
      } catch (error) {
        try {
          await declareDeath(message, queue, error);
          channel.ack(message);
        } catch (refused) {
          console.log(`refused ${refused.message}`);
          channel.nack(message, false, false);
        }
      }
      left -= 1;
      if (left === 0) done();
    });
  });
  await channel.close();
  await connection.close();
}

main(process.argv.slice(2)).catch((error) => { console.error(error); process.exit(1); });
