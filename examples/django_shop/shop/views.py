"""Taking orders, and telling what became of them."""

import json

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from pysqlbox.contrib.django import deployment
from shop.messages import OrderPlaced
from shop.models import Invoice, Order
from shop.tasks import send_receipt


@csrf_exempt  # an API without cookies
@require_POST
@transaction.atomic
def place_order(request: HttpRequest) -> JsonResponse:
    """The order, its message and its task are kept by one commit, or none of them is."""
    wanted = json.loads(request.body)
    order = Order.objects.create(customer=wanted["customer"], cents=wanted["cents"])
    deployment().outbox.publish(OrderPlaced(order.pk, order.customer, order.cents), connection=connection)
    send_receipt.enqueue(order.pk)
    return JsonResponse({"id": order.pk}, status=201)


@require_GET
def totals(request: HttpRequest) -> JsonResponse:
    """How many orders there are, how many are invoiced, how many receipts went out."""
    receipts = Order.objects.filter(receipt_sent=True).count()
    counts = {"orders": Order.objects.count(), "invoices": Invoice.objects.count(), "receipts": receipts}
    return JsonResponse(counts)
