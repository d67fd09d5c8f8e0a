"""Messages of the HTTP API: request bodies, which are checked as they are decoded, and responses.

Channels are numbered from 0. Where a request gives a channel, it may give the channel name instead.
"""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from idleband.allocator.settings import unchangeable

Count = Annotated[int, Meta(ge=0, le=2**53)]
NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,79}"
Name = Annotated[str, Meta(pattern=f"^{NAME}$")]
RequestId = Annotated[
    str, Meta(min_length=1, max_length=128, description="name of the decision, chosen by the client, new each time")
]
Channel = Count | Annotated[str, Meta(min_length=1, max_length=40)]
ReferenceReward = Annotated[float, Meta(ge=-1e12, le=1e12)]  # bounded, so that sums stay finite
ParameterValue = str | int | float | bool
MAX_STEPS = 1000  # of one request

# Feedback: in the order of the decision's channels, or by channel.
Values = list[float | None] | dict[str, float | None]
_FEEDBACK = (
    "a list in the order of the decision's channels (null: not reported), or an object with channel indices or names"
    " as keys"
)


# --- requests --------------------------------------------------------------------------------------------------------


class DecideRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    request_id: RequestId
    contexts: Annotated[list[list[float]], Meta(description="one row per channel")] | None = None
    users: Annotated[Count, Meta(description="channels wanted; default and maximum: users of the allocator")] | None = (
        None
    )
    available: Annotated[list[bool], Meta(description="one flag per channel; default: all are available")] | None = None
    states: (
        Annotated[
            list[int | None],
            Meta(description="sensed before the decision, one per channel: 0 busy, 1 idle, null not sensed"),
        ]
        | None
    ) = None
    slot: (
        Annotated[Count, Meta(description="greater than the last slot by at most 2^32; default: the next one")] | None
    ) = None
    incumbent: (
        Annotated[
            list[Channel],
            Meta(description="channels to assign instead of the policy's; the policy learns in shadow mode"),
        ]
        | None
    ) = None


class Reference(Struct, forbid_unknown_fields=True, kw_only=True):
    """Reference values of the slot that a simulator knows. They are shown on the page and not learned."""

    static: Annotated[ReferenceReward, Meta(description="expected reward of the static reference")]
    contextual: Annotated[ReferenceReward, Meta(description="expected reward of the contextual reference")]
    suboptimal_static: Annotated[Count, Meta(description="assigned channels that are not in the static reference")]
    suboptimal_contextual: Annotated[
        Count, Meta(description="assigned channels that are not in the contextual reference")
    ]


class ReportRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    request_id: RequestId
    rewards: Annotated[Values, Meta(description=_FEEDBACK)]
    states: (
        Annotated[
            list[int | None] | dict[str, int | None],
            Meta(description=f"0 busy, 1 idle; inferred from the reward where not given; {_FEEDBACK}"),
        ]
        | None
    ) = None
    perturbations: Annotated[Values, Meta(description=_FEEDBACK)] | None = None
    reference: Reference | None = None


class StepRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """Feedback for one slot and a request for the next. One of them may be left out."""

    report: Annotated[ReportRequest | None, Meta(description="feedback for an earlier decision; default: none")] = None
    decide: Annotated[DecideRequest | None, Meta(description="request for the next slot; default: none")] = None


class NamedStepRequest(StepRequest, forbid_unknown_fields=True, kw_only=True):
    """A step of one of several allocators."""

    name: Annotated[str, Meta(min_length=1, max_length=80, description="name of the allocator")]


class StepsRequest(Struct, forbid_unknown_fields=True):
    steps: Annotated[
        list[NamedStepRequest],
        Meta(min_length=1, max_length=MAX_STEPS, description="carried out in this order; several of one allocator too"),
    ]


class SensingErrors(Struct, forbid_unknown_fields=True, kw_only=True):
    """Probabilities of wrong observations: one number for all channels, or one per channel."""

    missed: Annotated[float | list[float], Meta(description="that a busy channel is observed as idle")] = 0.0
    false_alarm: Annotated[float | list[float], Meta(description="that an idle channel is observed as busy")] = 0.0


class NewAllocator(Struct, forbid_unknown_fields=True, kw_only=True):
    name: Name
    policy: str
    channels: int
    users: int
    dimension: int | UnsetType = UNSET
    parameters: Annotated[dict[str, ParameterValue], Meta(description='of the policy, as in {"beta": 0.5}')] = {}
    channel_names: list[str] | UnsetType = UNSET
    feedback: str | UnsetType = UNSET
    rewards: list[float] | UnsetType = UNSET
    sensing_errors: SensingErrors | UnsetType = UNSET
    switching_cost: float | UnsetType = UNSET
    seed: int | UnsetType = UNSET
    patience: int | UnsetType = UNSET
    fallback: str | UnsetType = UNSET
    incumbent: str | UnsetType = UNSET
    deadline: float | UnsetType = UNSET
    collision_limit: float | UnsetType = UNSET


class AllocatorChange(Struct, forbid_unknown_fields=True, kw_only=True):
    """What is given changes, all of it or nothing; the rest stays."""

    name: Annotated[Name | UnsetType, Meta(description="another name")] = UNSET
    channel_names: Annotated[
        list[str] | UnsetType | None, Meta(description="one per channel; null: channels have no names")
    ] = UNSET
    patience: Annotated[int | UnsetType, Meta(description="slots for which a decision is kept for feedback")] = UNSET
    deadline: Annotated[
        float | UnsetType | None, Meta(description="seconds after which the fallback decides; null: none")
    ] = UNSET
    collision_limit: float | UnsetType = UNSET

    @staticmethod
    def unknown_field(name: str) -> str:
        """Return why a field is refused: most settings cannot be changed."""
        return str(unchangeable(name))


class ChannelList(Struct, forbid_unknown_fields=True):
    channels: list[Channel]


# --- responses -------------------------------------------------------------------------------------------------------


class DecideResponse(Struct, kw_only=True):
    request_id: str
    slot: int
    channels: Annotated[list[int], Meta(description="indices of the assigned channels")]
    channel_names: Annotated[list[str], Meta(description="their names, if channels have names")] | UnsetType = UNSET
    by: Annotated[str, Meta(description="policy, incumbent or fallback")]
    proposed: Annotated[list[int], Meta(description="selection of the policy; null: it did not answer")] | None


class ReportResponse(Struct):
    learned: Annotated[list[int], Meta(description="channels whose feedback was new")]
    repeated: Annotated[list[int], Meta(description="channels whose feedback had been reported before")]
    late: Annotated[bool, Meta(description="the decision is older than `patience` slots; nothing was learned")]


class StepResponse(Struct, omit_defaults=True):
    report: Annotated[ReportResponse, Meta(description="if the request has a report")] | UnsetType = UNSET
    decide: Annotated[DecideResponse, Meta(description="if the request has a decide")] | UnsetType = UNSET


class Problem(Struct):
    """Why a request was refused."""

    status: int
    detail: str


class StepOutcome(StepResponse, omit_defaults=True):
    """The answer to one of several steps, or why it was refused and nothing of it was done."""

    problem: Problem | UnsetType = UNSET


class StepsResponse(Struct):
    results: Annotated[list[StepOutcome], Meta(description="one per step, in the order of the request")]


class ExplainedChannel(Struct):
    channel: int
    name: str | None
    assigned: bool
    status: Annotated[str, Meta(description="available, unavailable, vacated or withheld")]
    index: float | None
    estimate: float | None
    width: float | None
    belief: float | None
    primary_user_probability: float | None


class ExplainResponse(Struct):
    request_id: str
    slot: int
    by: str
    policy: str
    estimate_meaning: str
    width_meaning: str
    channels: list[ExplainedChannel]
    text: Annotated[str, Meta(description="the explanation in sentences, with channel names if there are any")]


class ChannelStatus(Struct):
    channel: int
    name: str | None
    belief: Annotated[float, Meta(description="probability that the channel is idle")]
    plays: int
    mean_reward: float | None
    last_observed: Annotated[str, Meta(description="busy or idle")] | None
    last_observed_slot: int
    vacated: bool


class AllocatorStatus(Struct):
    name: str
    number: Annotated[int, Meta(description="identifies the allocator whatever its name is; never used again")]
    policy: str
    channels: int
    users: int
    dimension: int
    feedback: str
    collision_limit: float
    slot: int
    policy_failure: Annotated[str, Meta(description="why the policy is out of service; empty if it is in service")]
    counts: Annotated[
        dict[str, int | float], Meta(description="since the allocator was created; repeated: since it was opened")
    ]
    last: DecideResponse | None
    channel: list[ChannelStatus]
    settings: dict[str, Any]


class AllocatorList(Struct, omit_defaults=True):
    allocators: list[str]
    next: Annotated[str, Meta(description="give this as `after` to get further names")] | UnsetType = UNSET


class DeletedResponse(Struct):
    name: str
    number: int
    slot: Annotated[int, Meta(description="of the last decision")]


class VacatedResponse(Struct):
    leave: Annotated[list[int], Meta(description="channels of the last decision that must be vacated now")]
    vacated: Annotated[list[int], Meta(description="all vacated channels")]


class Health(Struct):
    status: Annotated[str, Meta(description="ok or failing")]
    version: str
    allocators: int
    open: Annotated[int, Meta(description="allocators in memory; the others are opened when they are needed")]
    journal: Annotated[str, Meta(description="ok, or why it cannot be written")]
    out_of_service: Annotated[
        dict[str, str],
        Meta(description="allocators whose fallback decides -> reason; of those opened since the service was started"),
    ]
