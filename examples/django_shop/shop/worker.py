"""What happens to orders: ``manage.py pysqlbox work shop.worker:make_worker``."""

import pysqlbox
from pysqlbox.contrib.django import atomic, deployment
from pysqlbox.contrib.django.tasks import add_tasks
from shop.messages import OrderPlaced
from shop.models import Invoice


def invoice(order: OrderPlaced) -> None:
    """Runs inside one transaction with the message's end: the invoice is written exactly once."""
    Invoice.objects.create(order_id=order.order_id, cents=order.cents)


def make_worker() -> pysqlbox.Worker:
    """The worker, on the database of Django's settings."""
    worker = deployment().worker(threads=4)
    worker.handler(OrderPlaced, transactional=atomic)(invoice)
    add_tasks(worker)  # or a process of their own: manage.py pysqlbox_tasks
    return worker
