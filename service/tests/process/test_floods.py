"""Many slow clients, and bodies of some size, hold up no one else."""

from service.tests.running import Running
from tests.cli.program import do

HEAD = "POST /v1/queues/orders/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_slow_clients_keep_nobody_waiting(shared: Running, service_database: str) -> None:
    do(service_database, "select pgmq.create('orders')")
    slow = [shared.dial() for _ in range(100)]
    try:
        for connection in slow:
            connection.sendall(f"{HEAD}Content-Length: 100\r\n\r\n".encode())
        with shared.client() as client:
            done = client.post("/v1/queues/orders/messages", json={"body": 1})
            assert done.status_code == 201
    finally:
        for connection in slow:
            connection.close()
