"""What the shop does behind its answers: ordinary tasks of Django, which pysqlbox keeps and runs."""

from shop.models import Order

try:
    from django.tasks import task
except ModuleNotFoundError:  # before Django 6: pip install django-tasks
    from django_tasks import task


@task()
def send_receipt(order_id: int) -> None:
    """Runs at least once: a mail would carry the order's number, by which the customer knows it."""
    Order.objects.filter(pk=order_id).update(receipt_sent=True)
