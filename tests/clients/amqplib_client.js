// amqplib: publishes one message with every type of header that it can write, then rejects it as often as it comes.
// node amqplib_client.js URL EXCHANGE KEY QUEUE TIMES: prints each delivery as a line of JSON.
'use strict';
const amqp = require('amqplib');

const HEADERS = {
  'x-byte': { '!': 'int8', value: -1 },
  'x-octet': { '!': 'uint8', value: 255 },
  'x-short': { '!': 'int16', value: -300 },
  'x-ushort': { '!': 'uint16', value: 65535 },
  'x-int': { '!': 'int32', value: -70000 },
  'x-uint': { '!': 'uint32', value: 4294967295 },
  'x-long': { '!': 'int64', value: 5000000000 },
  'x-float': { '!': 'float', value: 0.1 },
  'x-double': 3.14159,
  'x-decimal': { '!': 'decimal', value: { places: 2, digits: 1500 } },
  'x-time': { '!': 'timestamp', value: 1763800000 },
  'x-true': true,
  'x-null': null,
  'x-text': 'größe',
  'x-bytes': Buffer.from([0, 255, 254]),
  'x-array': [1, 'two', 3.5, null, { deep: [true] }],
  'x-table': { inner: { value: 2.5 } },
};
const OPTIONS = {
  contentType: 'application/octet-stream', contentEncoding: 'none', persistent: true, priority: 3, correlationId: 'c-1',
  replyTo: 'answers', messageId: 'm-1', timestamp: 1763800000123, type: 'order', appId: 'shop', headers: HEADERS,
};

async function main([url, exchange, key, queue, times]) {
  const connection = await amqp.connect(url);
  const channel = await connection.createConfirmChannel();
  channel.publish(exchange, key, Buffer.from([0, 1, 2, 253, 254, 255]), OPTIONS);
  await channel.waitForConfirms();
  let left = Number(times);
  await new Promise((done) => {
    channel.consume(queue, (message) => {
      const { exchange, routingKey, redelivered } = message.fields;
      const content = message.content.toString('hex');
      console.log(JSON.stringify({ exchange, routingKey, redelivered, properties: message.properties, content }));
      channel.nack(message, false, false);
      left -= 1;
      if (left === 0) done();
    });
  });
  await channel.close();
  await connection.close();
}

main(process.argv.slice(2)).catch((error) => { console.error(error); process.exit(1); });
