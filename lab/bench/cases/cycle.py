"""The whole cycle (send, take, settle: three transactions; also on a new connection each), and sending alone."""

from __future__ import annotations

from collections.abc import Sequence

from lab.bench import scripts
from lab.bench.contestants import NATIVE
from lab.bench.plan import Plan
from lab.bench.stage import Experiment, Stage


def experiments(plan: Plan) -> tuple[Experiment, ...]:
    return (
        *(_cycle("cycle", batch, clients) for batch, clients in plan.cycles),
        *(_cycle("client", batch, clients) for batch, clients in plan.client_cycles),
        _cycle("connection", 1, 4),
        *(_send(batch, clients) for batch, clients in plan.sends),
    )


def _cycle(form: str, batch: int, clients: int) -> Experiment:
    case = f"{form}/batch-{batch}/clients-{clients}"
    write = scripts.client_cycle if form == "client" else scripts.cycle

    def run(stage: Stage, _: Sequence[str]) -> None:
        for number, contestant, database in stage.rounds(stage.plan.rounds):
            database.create_queue()
            database.calm()
            script = write(contestant, batch)
            stage.load(
                case,
                number,
                contestant,
                script,
                messages=batch,
                clients=clients,
                seconds=stage.plan.seconds,
                reconnecting=form == "connection",
            )
            database.drop_queue()
            database.calm()

    return Experiment((case,), run)


def _send(batch: int, clients: int) -> Experiment:
    case = f"send/batch-{batch}/clients-{clients}"

    def run(stage: Stage, _: Sequence[str]) -> None:
        for number, contestant, database in stage.rounds(stage.plan.rounds):
            if contestant.name == NATIVE:  # sends by the same function
                continue
            database.create_queue()
            database.calm()
            stage.load(
                case,
                number,
                contestant,
                scripts.send(batch),
                messages=batch,
                clients=clients,
                settling=False,
                seconds=stage.plan.send_seconds,
            )
            database.drop_queue()
            database.calm()

    return Experiment((case,), run)
