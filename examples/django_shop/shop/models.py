"""Orders, and the invoices that the worker writes for them."""

from django.db import models


class Order(models.Model):
    """What a customer ordered."""

    customer = models.CharField(max_length=100)
    cents = models.PositiveIntegerField()
    receipt_sent = models.BooleanField(default=False)


class Invoice(models.Model):
    """There is one for each order, in the end."""

    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="invoices")
    cents = models.PositiveIntegerField()
