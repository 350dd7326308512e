"""AMQP 0-9-1 frames, properties and field tables without I/O: bytes in, events out; values in, bytes out.

`frames` is the door: events, `Parser` and the frames we send. `properties` and `table` edit what is inside a content
header, and copy every byte that is not ours.
"""
