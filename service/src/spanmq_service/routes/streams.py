"""Routes of the streams that consume queues, and of the jobs of the pipeline."""

from spanmq_service.routes.doors import add_doors
from spanmq_service.routes.table import Table

routes = Table("streams")

runs = Table("pipeline")

add_doors(routes, "receiver")
add_doors(runs, "pipeline")
