"""Doors: commands and routes that only call a method of the client, a line each.

Names, types, defaults and words come from the method (`spanmq.client.door`); a line has what it does not know.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Shell:
    """How a command shows what its method returns.

    A method that acts has a sentence, `done`, with its arguments and its `result` by their names
    (`{rejected:message}`: a number of them), or two: for true and false. The record of --json has the required
    arguments, or those of `echo`, the result, and what is `also` true. Of another method `columns` are those of a
    table, and `empty` stands for no rows: by default that there are no such things.
    `example` follows the name of the command; by default it is examples of the arguments. `words` names the words in
    `spanmq.cli.option` of an argument, where they are not those of its name. `more` is added to the help.
    """

    done: str | tuple[str, str] = ""
    result: str = ""
    _: KW_ONLY
    echo: tuple[str, ...] | None = None
    also: Mapping[str, object] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    empty: str = ""
    example: str = ""
    words: Mapping[str, str] = field(default_factory=dict)
    more: str = ""


@dataclass(frozen=True, slots=True)
class Http:
    """A `route`, such as `GET /queues`: `name` is the operation's, `answer` names the type and the result in it.

    The answer has the arguments of `echo` too, and what is `also` true. Arguments are in the path, else in the query,
    or in a JSON object: `body` has its type and description. `names` has those arguments that have other names here,
    `without` those that a request can't have; `words` names the types of arguments in `routes.parts` of the service,
    where they are not those of their names. `about` stands for the docstring, `tag` for that of the table of routes.

    A token needs `look` for a GET and `manage` for other methods, or the verb `needs`: for the queue of the path, else
    for all queues. `of` says that it is for all queues in spite of a path, or that the answer is filtered: it has
    those queues that the token may look at.
    """

    route: str
    name: str
    answer: str
    _: KW_ONLY
    needs: Literal["", "send", "receive", "look"] = ""
    of: Literal["", "everything", "filtered"] = ""
    echo: tuple[str, ...] = ()
    also: Mapping[str, object] = field(default_factory=dict)
    body: tuple[str, str] = ("", "")
    names: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    status: int = 200
    errors: tuple[int, ...] = ()
    tag: str = ""
    about: str = ""


@dataclass(frozen=True, slots=True)
class Door:
    """The `method` of a class of the client, its command and routes; `name` is the command's: noun and verb."""

    name: str
    method: str
    shell: Shell | None
    routes: tuple[Http, ...]


BY_HAND: Final = object()


def door(name: str, method: str, *faces: object) -> Door:
    """Return a line of the table; its command is `BY_HAND`, or as a Shell says."""
    shells = [face for face in faces if isinstance(face, Shell)]
    shell = None if BY_HAND in faces else (*shells, Shell())[0]
    return Door(name, method, shell, tuple(face for face in faces if isinstance(face, Http)))


# Columns of messages in a table; JSON has all fields.
MESSAGE_COLUMNS: Final = (
    *("message_id", "attempt", "lease_id", "leased_until", "archived_at", "group", "headers", "body"),
)
SAMPLE_COLUMNS: Final = (
    *("sampled_at", "sent", "received", "settled", "failed", "dead", "backlog", "in_flight"),
    "oldest_ready_seconds",
)
FAILING_COLUMNS: Final = (
    *("queue", "task", "count", "error_class", "error", "attempts", "last_failed_at", "retry_at", "example"),
    *("first_failed_at", "first_message_id", "is_exact"),
)
DEAD_LETTER_COLUMNS: Final = (
    *("dead_letter_id", "queue", "message_id", "dead_at", "category", "error_class", "error", "attempts"),
    *("group", "redriven_at", "body"),
)
BINDING_COLUMNS: Final = ("pattern", "queue", "expression", "bound_at")
ERROR: Final = ("Error", "An error's text and class.")
WORKER_COLUMNS: Final = (
    *(
        "worker",
        "queue",
        "slots",
        "held",
        "slow",
        "breaker_open_until",
        "breaker_error",
        "progress",
        "seen_at",
    ),
    *("started_at", "stop_asked_at"),
)
COUNT_COLUMNS: Final = ("queue", "state", "is_exact", "backlog", "visible", "in_flight", "delayed", "failed")
CHANGE_COLUMNS: Final = ("change_id", "changed_at", "role", "actor", "action", "queue", "details")
FAILING_MESSAGE_COLUMNS: Final = (
    *("message_id", "task", "attempts", "first_failed_at", "last_failed_at", "retry_at"),
    *("error_class", "error"),
)
BATCH_COLUMNS: Final = (
    *("batch_id", "queue", "total", "unsettled", "done", "dead", "created_at", "ended_at", "message_id"),
    "body",
)
FAILING_SOUGHT: Final = (
    "FailingSought",
    "Selects failing messages, and the page of them: those after an id, in the order of the list.",
)
FAILING_MESSAGES: Final = """\
List messages that wait for another attempt, in order of their ids; the next page begins after the last.

`newest_first`: the newest one first."""
NOTIFIES: Final = "{queue} notifies listeners, at most every {throttle:g} s"

# Laid out by hand: a face a line, or two.
# fmt: off
DOORS: Final = (
    # Queues.
    door("queue create", "Queues.create", BY_HAND,
         Http("PUT /queues/{queue}", "create_queue", "QueueNamed", names={"name": "queue"}, echo=("queue",),
              body=("NewQueue", "The kind of a queue; the intervals make it a partitioned queue as in PGMQ."))),
    door("queue drop", "Queues.drop", BY_HAND,
         Http("DELETE /queues/{queue}", "drop_queue", "Existed.existed", errors=(409,))),
    door("queue purge", "Queues.purge", BY_HAND,
         Http("POST /queues/{queue}/purge", "purge", "Removed.removed")),
    door("queue pause", "Queues.pause",
         Shell("receivers get no messages of {queue} until it is resumed", also={"is_paused": True}),
         Http("POST /queues/{queue}/pause", "pause", "Paused", echo=("queue",), also={"is_paused": True})),
    door("queue resume", "Queues.resume",
         Shell("receivers get messages of {queue} again", also={"is_paused": False}),
         Http("POST /queues/{queue}/resume", "resume", "Paused", echo=("queue",), also={"is_paused": False})),
    door("queue close-breaker", "Queues.close_breaker",
         Shell("closed the circuit breakers of {closed:worker} of {queue}", "closed"),
         Http("POST /queues/{queue}/close-breaker", "close_breaker", "closed")),
    door("queue workers", "Health.workers",
         Shell(columns=WORKER_COLUMNS, empty="no worker has reported within a minute",
               more="`spanmq worker list` is the same command."),
         Http("GET /workers", "list_workers", "workers", of="filtered",
              about="List the workers of queues that the token may look at, as they reported within the last minute.")),
    door("queue stop-worker", "Admin.stop_worker",
         Shell("worker {worker} is asked to stop", "queues"),
         Http("POST /workers/stop", "stop_worker", "Stopped.queues", echo=("worker",),
              body=("StoppedWorker", "The name of a worker, as it is listed."), errors=(404,))),
    door("policy get", "Queues.policy",
         Http("GET /queues/{queue}/policy", "get_policy", "PolicyAnswer.policy")),
    door("queue metrics", "Queues.metrics", BY_HAND,
         Http("GET /queues/{queue}/metrics", "metrics", "QueueCounts.metrics")),
    door("queue storage", "Inspect.storage", Http("GET /queues/{queue}/storage", "storage", "storage")),
    door("queue statistics", "Health.statistics",
         Shell(columns=SAMPLE_COLUMNS, empty="no samples: nothing happened, or nothing calls maintain()",
               example="orders --seconds 7200"),
         Http("GET /queues/{queue}/statistics", "statistics", "Statistics.samples")),
    door("queue latest-statistics", "Health.latest",
         Shell(columns=("queue", "state", *SAMPLE_COLUMNS), empty="no queues")),
    door("queue sum-statistics", "Health.total",
         Shell(example="orders invoices --step 600"),
         Http("GET /statistics", "sum_statistics", "StatisticsSums.steps", of="filtered",
              about="Return the sums of the statistics of all queues that the token may look at, in steps.")),
    door("queue health", "Health.now", BY_HAND,
         Http("GET /health", "health", "Health.queues", of="filtered",
              about="Return the health of each queue that the token may look at.")),
    door("queue attention", "Health.attention", BY_HAND,
         Http("GET /attention", "attention", "Attentions.reasons", of="filtered",
              about="Return why queues that the token may look at need attention, such as dead letters or no worker.")),
    door("queue count", "Inspect.count",
         Shell(columns=COUNT_COLUMNS, empty="no queues"),
         Http("GET /count", "count_messages", "WaitingCounts.queues", of="filtered",
              about="Count the messages that wait in each queue that the token may look at, up to `most` in each.")),
    door("queue leases", "Inspect.leases", Http("GET /queues/{queue}/leases", "list_leases", "leases")),
    door("queue groups", "Inspect.groups", Http("GET /queues/{queue}/groups", "list_groups", "groups")),
    door("queue segments", "Inspect.segments",
         Http("GET /queues/{queue}/segments", "list_segments", "segments")),
    door("doctor", "Health.doctor", BY_HAND, Http("GET /doctor", "doctor", "findings")),
    door("version", "Admin.version", BY_HAND, Http("GET /version", "version", "version", of="filtered")),
    door("maintain", "Admin.maintain", BY_HAND,
         Http("POST /maintain", "maintain", "Maintenance.steps",
              about="Run one bounded step of maintenance; the service also does this in the background.")),
    # Messages, and those that fail.
    door("message peek", "Client.peek",
         Shell(columns=MESSAGE_COLUMNS, empty="no messages", example="orders --limit 100 --newest-first"),
         Http("GET /queues/{queue}/messages", "peek", "ReceivedMessages.messages")),
    door("message peek-archive", "Inspect.archive",
         Shell(columns=MESSAGE_COLUMNS, empty="the archive is empty", example="orders --after 4711"),
         Http("GET /queues/{queue}/archive", "peek_archive", "ReceivedMessages.messages")),
    door("why", "Inspect.explain",
         Shell(columns=("code", "sentence", "until", "call")),
         Http("GET /queues/{queue}/messages/{message_id}/explain", "explain", "Explanations.reasons",
              echo=("message_id",))),
    door("message failures", "Inspect.failures",
         Shell(empty="it never failed"),
         Http("GET /queues/{queue}/messages/{message_id}/failures", "failures", "failures",
              echo=("message_id",))),
    door("queue changes", "Inspect.changes",
         Shell(columns=CHANGE_COLUMNS, empty="no change is recorded"),
         Http("GET /queues/{queue}/changes", "changes", "changes", tag="messages")),
    door("queue failing", "Inspect.failing",
         Shell(columns=FAILING_COLUMNS, empty="no message waits for another attempt"),
         Http("GET /queues/{queue}/failing", "failing", "FailingCauses.causes", tag="messages")),
    door("queue failing-messages", "Inspect.failing_messages",
         Shell(columns=FAILING_MESSAGE_COLUMNS, empty="no such message waits for another attempt",
               example="orders --error-class KeyError --newest-first"),
         Http("POST /queues/{queue}/failing/search", "failing_messages", "FailingMessages.messages", needs="look",
              words={"error_class": "task"}, tag="messages", body=FAILING_SOUGHT, about=FAILING_MESSAGES)),
    # Dead letters, and categories of failures.
    door("dead-letter list", "DeadLetters.list",
         Shell(columns=DEAD_LETTER_COLUMNS, example="orders --error timeout --since 2030-01-31T12:00")),
    door("dead-letter show", "DeadLetters.show",
         Shell(columns=DEAD_LETTER_COLUMNS, empty="it never became a dead letter"),
         Http("GET /queues/{queue}/messages/{message_id}/dead-letters", "dead_letters_of",
              "DeadLetters.dead_letters")),
    door("dead-letter count", "DeadLetters.count", Shell(empty="no dead letters"),
         Http("GET /dead-letters", "count_all_dead_letters", "DeadLetterCounts.counts", of="filtered",
              about="Count the dead letters, by queue and category."),
         Http("GET /queues/{queue}/dead-letters", "count_dead_letters", "DeadLetterCounts.counts")),
    door("category classify", "Categories.classify",
         Shell("{category}", "category", example='"connection refused" --error-class OSError'),
         Http("POST /classify", "classify", "Classified.category", needs="look", body=ERROR),
         Http("POST /queues/{queue}/classify", "classify_in_queue", "Classified.category", needs="look",
              body=ERROR)),
    door("category list-rules", "Categories.list_rules",
         Shell(columns=("place", "name", "category", "error_class", "error", "queue")),
         Http("GET /category-rules", "list_category_rules", "CategoryRules.rules",
              about="List the rules for all queues, in the order in which they are applied."),
         Http("GET /queues/{queue}/category-rules", "list_category_rules_of_queue", "CategoryRules.rules")),
    door("category set-rule", "Categories.set_rule",
         Shell("{name}: {category}", example='"out of stock" BUSINESS --error "out of stock" --queue orders',
               words={"error": "text_pattern", "error_class": "class_pattern"})),
    door("category drop-rule", "Categories.drop_rule",
         Shell(("dropped {name}", "rule {name} did not exist"), "dropped",
               example='"out of stock" --queue orders'),
         Http("DELETE /category-rules/{name}", "drop_category_rule", "Existed.existed",
              words={"name": "rule"}),
         Http("DELETE /queues/{queue}/category-rules/{name}", "drop_category_rule_of_queue",
              "Existed.existed", words={"name": "rule"})),
    door("category list-policies", "Categories.list_policies",
         Http("GET /category-policies", "list_category_policies", "CategoryPolicies.policies"),
         Http("GET /queues/{queue}/category-policies", "list_category_policies_of_queue",
              "CategoryPolicies.policies")),
    # Batches and tasks.
    door("batch list", "Batches.list", Shell(columns=BATCH_COLUMNS, empty="no batches")),
    door("task list", "Health.task_kinds",
         Shell(empty="no worker has handled a task in this time", example="orders --seconds 600")),
    door("task statistics", "Health.task_statistics",
         Shell(example="orders ship --seconds 86400 --step 900")),
    door("task shapes", "Inspect.task_shapes", Shell(empty="no sender has noted a shape")),
    # Schedules and signals.
    door("schedule create", "Schedules.create",
         Shell("scheduled {name}", echo=("name",),
               example="nightly reports '30 2 * * *' '{\"kind\": \"daily\"}' --time-zone Europe/Berlin")),
    door("schedule list", "Schedules.list"),
    door("schedule pause", "Schedules.pause", Shell("paused {name}")),
    door("schedule resume", "Schedules.resume", Shell("resumed {name}")),
    door("schedule run", "Schedules.run", Shell("sent message {message_id}", "message_id")),
    door("schedule delete", "Schedules.delete",
         Shell(("deleted {name}", "schedule {name} did not exist"), "existed")),
    door("signal send", "Signals.send",
         Shell("{name} in {queue}: {outcome}", "outcome", example="orders approved:42 '{\"by\": \"ann\"}'"),
         Http("POST /queues/{queue}/signals", "signal", "SignalSent.outcome", needs="send",
              body=("NewSignal", "A signal to send."), errors=(409,))),
    door("signal list", "Signals.list",
         Shell(columns=("name", "is_wait", "made_at", "until", "body"), empty="no waits and no signals"),
         Http("GET /queues/{queue}/signals", "list_signals", "signals", names={"limit": "quantity"},
              words={"after": "name"})),
    # Topics, subscriptions and notifications.
    door("topic send", "Topics.send", BY_HAND,
         Http("POST /topics/{topic}/messages", "send_topic", "TopicSent.queues", needs="send", status=201,
              body=("SingleTopicMessage", "One message for a topic."), names={"routing_key": "topic"},
              words={"delay": "keep_for"}, errors=(404, 409),
              about="Send a message to every queue with a pattern that matches.")),
    door("topic bind", "Topics.bind",
         Shell("{pattern} goes to {queue}"),
         Http("PUT /queues/{queue}/bindings/{pattern}", "bind_topic", "Bound", of="everything",
              echo=("queue", "pattern"), errors=(409,))),
    door("topic unbind", "Topics.unbind",
         Shell(("{pattern} no longer goes to {queue}", "{pattern} did not go to {queue}"), "unbound"),
         Http("DELETE /queues/{queue}/bindings/{pattern}", "unbind_topic", "Existed.existed",
              of="everything")),
    door("topic list", "Topics.list",
         Shell(columns=BINDING_COLUMNS, empty="no bindings"),
         Http("GET /bindings", "list_all_topic_bindings", "TopicBindings.bindings"),
         Http("GET /queues/{queue}/bindings", "list_topic_bindings", "TopicBindings.bindings")),
    door("topic match", "Topics.match",
         Shell(columns=BINDING_COLUMNS, empty="no bindings"),
         Http("GET /topics/{topic}/routing", "try_routing", "TopicBindings.bindings",
              names={"routing_key": "topic"})),
    door("subscription list", "Subscriptions.list"),
    door("notification enable", "Notifications.enable",
         Shell(NOTIFIES, echo=("queue",), example="orders --throttle 1")),
    door("notification update", "Notifications.update",
         Shell(NOTIFIES, echo=("queue",), example="orders --throttle 0.5")),
    door("notification disable", "Notifications.disable", Shell("{queue} notifies no listener")),
    door("notification list", "Notifications.list", Shell(empty="no queue notifies listeners")),
    # Rights.
    door("grant create", "Grants.create", Shell("{role} may {verb}: {queue}")),
    door("grant revoke", "Grants.revoke",
         Shell(("{role} may no longer {verb}: {queue}", "{role} still has part of this right through another grant"),
               "is_gone")),
    door("grant revoke-all", "Grants.revoke_all",
         Shell("{role} may no longer {verb}: all queues", also={"queue": None},
               words={"verb": "verb_on_all"})),
    door("grant follow-tables", "Grants.follow_tables",
         Shell(columns=("queue", "role", "verb"), empty="no role has a verb by table grants", example="")),
    door("grant list", "Grants.list", Shell(columns=("queue", "role", "verb"))),
    door("token create", "Tokens.create",
         Shell("{token}", "token", echo=("name",),
               example="shop --queue 'orders-*' --verb send --expires 2592000")),
    door("token list", "Tokens.list"),
    door("token rotate", "Tokens.rotate", Shell("{token}", "token", example="shop --overlap 3600")),
    door("token revoke", "Tokens.revoke",
         Shell(("revoked token {name}", "token {name} did not exist"), "existed")),
    door("key list", "Keys.list",
         Shell(columns=("access_key_id", "queues", "verbs", "created_at", "expires_at"))),
    door("key revoke", "Keys.revoke",
         Shell(("revoked key {access_key_id}", "key {access_key_id} did not exist"), "existed")),
    # Streams, and the jobs of the pipeline.
    door("receiver list", "Receivers.list",
         Http("GET /receivers", "list_all_receivers", "receivers", of="filtered",
              about="List the streams of queues that the token may look at."),
         Http("GET /queues/{queue}/receivers", "list_receivers", "receivers")),
    door("receiver adopt", "Receivers.adopt",
         Shell("the next checkpoint with the label of {receiver} goes on in its place"),
         Http("POST /queues/{queue}/receivers/{receiver}/adopt", "adopt_receiver", "Adopted",
              echo=("receiver",))),
    door("receiver release", "Receivers.release", BY_HAND,
         Http("POST /queues/{queue}/receivers/{receiver}/release", "release_receiver", "Released.released",
              without=("settled_token",))),
    door("receiver reject", "Receivers.reject",
         Shell("rejected {rejected:message} of queue {queue}", "rejected", echo=("queue", "receiver"),
               example='orders lake 4711 --error "no such customer"')),
    door("pipeline forget-export", "Receivers.forget_export",
         Shell(("retention no longer waits for {lake}", "no export into {lake} is recorded"), "forgotten"),
         Http("POST /queues/{queue}/forget-export", "forget_export", "Existed.existed", tag="streams")),
    door("pipeline runs", "PipelineRuns.list",
         Shell(empty="no job has run"),
         Http("GET /pipeline-runs", "list_all_pipeline_runs", "PipelineRuns.pipeline_runs", of="filtered",
              about="List the runs of jobs, the newest first: those of queues that the token may look at."),
         Http("GET /queues/{queue}/pipeline-runs", "list_pipeline_runs", "PipelineRuns.pipeline_runs")),
)
# fmt: on
