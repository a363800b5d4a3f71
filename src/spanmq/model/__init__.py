"""What the client returns: small, frozen values without I/O.

Words: a message's id is `message_id` here and `msg_id` in SQL, where PGMQ's columns keep their names;
`attempt` is PGMQ's `read_ct`, `leased_until` its `vt`.
"""

from spanmq.model.access import AccessKey, QueueGrant, Token
from spanmq.model.dead_letter import (
    DeadLetter,
    DeadLetterCount,
    DeadLetterFilters,
    FailingCause,
    FailingFilters,
    FailingMessage,
    Redriven,
)
from spanmq.model.health import (
    Finding,
    LatestStatistics,
    QueueHealth,
    Sample,
    StatisticsStep,
    TaskKind,
    WorkerReport,
)
from spanmq.model.message import (
    GROUP_HEADER,
    Batch,
    Failure,
    Group,
    HeldLease,
    Leased,
    Message,
    Routed,
    Schedule,
    Settled,
)
from spanmq.model.policy import CategoryPolicy, CategoryRule, Policy, PolicyChange
from spanmq.model.queue import (
    Change,
    Flavour,
    MaintenanceStep,
    NotifyThrottle,
    Queue,
    QueueCount,
    QueueMetrics,
    QueueSchema,
    QueueStorage,
    Replayed,
    ReplayExtent,
    Segment,
    Subscription,
    TopicBinding,
)
from spanmq.model.shard_map import ROUTINGS, Routing, ShardMap
from spanmq.model.stream import PipelineRun, Receiver

__all__ = [
    "GROUP_HEADER",
    "ROUTINGS",
    "AccessKey",
    "Batch",
    "CategoryPolicy",
    "CategoryRule",
    "Change",
    "DeadLetter",
    "DeadLetterCount",
    "DeadLetterFilters",
    "FailingCause",
    "FailingFilters",
    "FailingMessage",
    "Failure",
    "Finding",
    "Flavour",
    "Group",
    "HeldLease",
    "LatestStatistics",
    "Leased",
    "MaintenanceStep",
    "Message",
    "NotifyThrottle",
    "PipelineRun",
    "Policy",
    "PolicyChange",
    "Queue",
    "QueueCount",
    "QueueGrant",
    "QueueHealth",
    "QueueMetrics",
    "QueueSchema",
    "QueueStorage",
    "Receiver",
    "Redriven",
    "ReplayExtent",
    "Replayed",
    "Routed",
    "Routing",
    "Sample",
    "Schedule",
    "Segment",
    "Settled",
    "ShardMap",
    "StatisticsStep",
    "Subscription",
    "TaskKind",
    "Token",
    "TopicBinding",
    "WorkerReport",
]
