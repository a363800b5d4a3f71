"""Results of the client: small, frozen values without I/O.

Words: a message's id is `message_id` here and `msg_id` in SQL, where PGMQ's columns keep their names;
`attempt` is PGMQ's `read_ct`, `leased_until` its `vt`.
"""

from spanmq.model.access import AccessKey, QueueGrant, Token
from spanmq.model.attention import Attention, HeldNotices
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
    Progress,
    QueueHealth,
    RunningHandler,
    Sample,
    StatisticsStep,
    TaskKind,
    TaskShape,
    TaskStep,
    WorkerReport,
)
from spanmq.model.message import (
    GROUP_HEADER,
    Batch,
    Explanation,
    Failure,
    Group,
    HeldLease,
    Leased,
    Message,
    Result,
    Routed,
    Schedule,
    Settled,
    SignalEntry,
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

# isort: split
# For the other distributions, and not public.
from spanmq.model.attention import REASONS as REASONS
from spanmq.model.attention import duration as duration
from spanmq.model.attention import hindrance as hindrance
from spanmq.model.cause import Cause as Cause
from spanmq.model.cause import causes_of as causes_of
from spanmq.model.message import obstacle as obstacle
from spanmq.model.policy import SETTING_WORDS as SETTING_WORDS
from spanmq.model.queue import folded as folded

__all__ = [
    "GROUP_HEADER",
    "ROUTINGS",
    "AccessKey",
    "Attention",
    "Batch",
    "CategoryPolicy",
    "CategoryRule",
    "Change",
    "DeadLetter",
    "DeadLetterCount",
    "DeadLetterFilters",
    "Explanation",
    "FailingCause",
    "FailingFilters",
    "FailingMessage",
    "Failure",
    "Finding",
    "Flavour",
    "Group",
    "HeldLease",
    "HeldNotices",
    "LatestStatistics",
    "Leased",
    "MaintenanceStep",
    "Message",
    "NotifyThrottle",
    "PipelineRun",
    "Policy",
    "PolicyChange",
    "Progress",
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
    "Result",
    "Routed",
    "Routing",
    "RunningHandler",
    "Sample",
    "Schedule",
    "Segment",
    "Settled",
    "ShardMap",
    "SignalEntry",
    "StatisticsStep",
    "Subscription",
    "TaskKind",
    "TaskShape",
    "TaskStep",
    "Token",
    "TopicBinding",
    "WorkerReport",
]
