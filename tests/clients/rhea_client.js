// rhea, AMQP 1.0: sends one message with every section filled, then rejects it as often as it comes.
// node rhea_client.js PORT VHOST EXCHANGE KEY QUEUE TIMES data|value: prints each delivery as a line of JSON.
'use strict';
const rhea = require('rhea');

const [port, vhost, exchange, key, queue, times, section] = process.argv.slice(2);
const MESSAGE = {
  durable: true, priority: 3, ttl: 3600000,
  message_id: 'm-1', user_id: Buffer.from('guest'), to: '/queues/elsewhere', subject: 'a subject', reply_to: '/queues/answers',
  correlation_id: 'c-1', content_type: 'application/octet-stream', content_encoding: 'none',
  absolute_expiry_time: 4102444800123, creation_time: 1763800000123,
  group_id: 'g-1', group_sequence: 7, reply_to_group_id: 'g-2',
  application_properties: {
    text: 'größe', flag: true, whole: rhea.types.wrap_int(-7), long: rhea.types.wrap_long(5000000000),
    double: rhea.types.wrap_double(3.14159), float: rhea.types.wrap_float(0.5),
    moment: rhea.types.wrap_timestamp(1763800000123), bytes: rhea.types.wrap_binary(Buffer.from([255, 254])),
  },
  message_annotations: { 'x-opt-mine': 'kept' },
  body: section === 'data' ? rhea.message.data_section(Buffer.from([0, 1, 2, 253, 254, 255])) : { list: [1, 'two', 3.5] },
};

function plain(message) {
  const { body, ...rest } = message;
  return { ...rest, user_id: String(rest.user_id), body: section === 'data' ? body.content.toString('hex') : body };
}

let left = Number(times);
rhea.on('connection_open', (context) => {
  context.connection.open_receiver({ source: `/queues/${queue}`, autoaccept: false, credit_window: 1 });
  context.connection.open_sender({ target: `/exchanges/${exchange}/${key}` });
});
rhea.once('sendable', (context) => context.sender.send(MESSAGE));
rhea.on('rejected', (context) => { console.error('refused', context.delivery.remote_state); process.exit(1); });
rhea.on('message', (context) => {
  console.log(JSON.stringify(plain(context.message)));
  context.delivery.reject();
  left -= 1;
  if (left === 0) setImmediate(() => context.connection.close());
});
for (const bad of ['connection_error', 'session_error', 'sender_error', 'receiver_error', 'disconnected']) {
  rhea.on(bad, (context) => {
    if (left === 0) return;
    const source = context.connection.error || context.session?.error || context.sender?.error || context.receiver?.error;
    console.error(bad, source || context.error);
    process.exit(1);
  });
}
rhea.connect({ host: '127.0.0.1', port: Number(port), username: 'guest', password: 'guest', hostname: `vhost:${vhost}`,
  reconnect: false });
