"""Relays: ready handlers that carry a box's messages on, and acknowledge what the other side has confirmed.

``webhook`` posts them over HTTP, signed as Standard Webhooks has it; ``nats`` publishes to a JetStream,
``rabbitmq`` to an exchange, ``batches`` to any other broker. ``cloudevents`` is an envelope by option.
"""
