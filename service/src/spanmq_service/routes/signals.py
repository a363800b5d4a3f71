"""Routes of signals, and of the messages that wait for them."""

from spanmq_service.routes.doors import add_doors
from spanmq_service.routes.table import Table

routes = Table("signals")

add_doors(routes, "signal")
