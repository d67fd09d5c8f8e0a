"""What is said over HTTP: the bodies of requests and answers, checked as they are read. Channels count from 0."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

Count = Annotated[int, Meta(ge=0, le=2**53)]
NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,79}"
Name = Annotated[str, Meta(pattern=f"^{NAME}$")]
Request = Annotated[
    str, Meta(min_length=1, max_length=128, description="a name of the client's own for the decision, new each time")
]
Possible = Annotated[float, Meta(ge=-1e12, le=1e12, description="what a slot could have earned")]  # sums stay finite
Value = str | int | float | bool


class Question(Struct, forbid_unknown_fields=True, kw_only=True):
    request: Request
    contexts: Annotated[list[list[float]], Meta(description="one row a channel")] | None = None
    users: Annotated[Count, Meta(description="channels wanted, at most the allocator's")] | None = None
    available: Annotated[list[bool], Meta(description="one a channel; all, if left out")] | None = None
    states: (
        Annotated[
            list[int | None],
            Meta(description="sensed before, one a channel: 0 with a primary user, 1 without; null: not sensed"),
        ]
        | None
    ) = None
    slot: Annotated[Count, Meta(description="above the last one; one more, if left out")] | None = None
    incumbent: (
        Annotated[
            list[Count | str],
            Meta(description="hand out these, the first `users` that may be, and learn in their shadow"),
        ]
        | None
    ) = None


class Answer(Struct):
    request: str
    slot: int
    channels: list[int]
    by: Annotated[str, Meta(description="policy, incumbent or fallback")]
    proposed: (
        Annotated[list[int], Meta(description="what the policy would have handed out; null: it had no say")] | None
    )


class Outcome(Struct, forbid_unknown_fields=True, kw_only=True):
    channel: Count
    reward: float
    state: (
        Annotated[Count, Meta(description="0 with a primary user, 1 without; inferred from the reward, if left out")]
        | None
    ) = None
    perturbation: float | None = None


class Reference(Struct, forbid_unknown_fields=True, kw_only=True):
    """What a simulator knows of the slot: shown on the page, not learned."""

    static: Possible
    contextual: Possible
    suboptimal_static: Count
    suboptimal_contextual: Count


class Feedback(Struct, forbid_unknown_fields=True, kw_only=True):
    request: Request
    outcomes: Annotated[list[Outcome], Meta(description="of all channels of the decision, or of some")]
    reference: Reference | None = None


class Taken(Struct):
    learned: list[int]
    repeated: list[int]
    late: bool


class NewAllocator(Struct, forbid_unknown_fields=True, kw_only=True):
    name: Name
    policy: str
    channels: int
    users: int
    dimension: int | UnsetType = UNSET
    channel_names: list[str] | UnsetType = UNSET
    parameters: Annotated[dict[str, Value], Meta(description='of the policy, as in {"beta": 0.5}')] = {}
    feedback: str | UnsetType = UNSET
    rewards: list[float] | UnsetType = UNSET
    seed: int | UnsetType = UNSET
    patience: int | UnsetType = UNSET
    fallback: str | UnsetType = UNSET
    incumbent: str | UnsetType = UNSET
    deadline: float | UnsetType = UNSET
    collision_limit: float | UnsetType = UNSET


class Channels(Struct, forbid_unknown_fields=True):
    channels: Annotated[list[Count | str], Meta(description="indices from 0, or names")]


class Term(Struct):
    channel: int
    name: str | None
    assigned: bool
    status: str
    index: float | None
    estimate: float | None
    width: float | None
    belief: float | None
    primary_user_probability: float | None


class Explained(Struct):
    request_id: str
    slot: int
    by: str
    policy: str
    estimate_meaning: str
    width_meaning: str
    channels: list[Term]
    text: Annotated[str, Meta(description="sentences, with channel names where there are names")]


class Channel(Struct):
    channel: int
    name: str | None
    belief: float
    plays: int
    mean_reward: float | None
    last_observed: Annotated[str, Meta(description="idle or busy")] | None
    last_observed_slot: int
    vacated: bool


class Standing(Struct):
    """How an allocator stands."""

    name: str
    policy: str
    channels: int
    users: int
    dimension: int
    feedback: str
    collision_limit: float
    slot: int
    policy_failure: Annotated[str, Meta(description="why the policy is out of service; empty if it is not")]
    counts: Annotated[dict[str, float], Meta(description="since it was made; repeated: since the service was started")]
    last: Answer | None
    channel: list[Channel]
    settings: dict[str, Any]


class Names(Struct):
    allocators: list[str]


class Left(Struct):
    leave: Annotated[list[int], Meta(description="channels of the last decision that must be left now")]
    vacated: list[int]


class Health(Struct):
    status: str
    version: str
    allocators: int
    journal: Annotated[str, Meta(description="ok, or why it cannot be written")]
    out_of_service: Annotated[dict[str, str], Meta(description="allocators whose fallback decides, and why")]


class Problem(Struct):
    status: int
    detail: str
