"""What the shop tells its worker."""

from dataclasses import dataclass

import pysqlbox


@pysqlbox.message("order.placed", group_id="customer")
@dataclass
class OrderPlaced:
    """An order is kept; those of one customer are handled in order."""

    order_id: int
    customer: str
    cents: int
