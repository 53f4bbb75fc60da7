"""Taking orders, and telling what became of them."""

import json

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from pysqlbox.contrib.django import deployment
from shop.messages import OrderPlaced
from shop.models import Invoice, Order


@csrf_exempt  # an API without cookies
@require_POST
@transaction.atomic
def place_order(request: HttpRequest) -> JsonResponse:
    """The order and its message are kept by one commit, or neither is."""
    wanted = json.loads(request.body)
    order = Order.objects.create(customer=wanted["customer"], cents=wanted["cents"])
    deployment().outbox.publish(OrderPlaced(order.pk, order.customer, order.cents), connection=connection)
    return JsonResponse({"id": order.pk}, status=201)


@require_GET
def totals(request: HttpRequest) -> JsonResponse:
    """How many orders there are, and how many are invoiced."""
    return JsonResponse({"orders": Order.objects.count(), "invoices": Invoice.objects.count()})
