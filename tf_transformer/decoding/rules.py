"""Rules of a search: objects that say which token may come next.

Beam search, sampling and the search in NumPy take a list of them, and know none by name. This
module imports neither TensorFlow nor Keras: a rule gets the operations that it computes with.
"Tensor" stands for a tensor of TensorFlow or an array of NumPy.

B batch, W beam width, V vocabulary, t tokens so far, P longest prefix, R forbidden tokens,
F forms of a slot: within a word, and after a space.
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tf_transformer.base.errors import UserError, shortened
from tf_transformer.config import EOS_ID, PAD_ID

Tensor = Any
Nest = Any  # a tensor, or tuples and dictionaries of tensors; () for none


class Operations(NamedTuple):
    """The operations of NumPy or TensorFlow that a rule computes with; axes may be negative."""

    where: Callable  # (condition, tensor or number, tensor or number)
    pad: Callable  # (tensor, [[before, after] of each axis]): adds zeros, which are PAD
    concat: Callable  # (list of tensors, axis)
    take: Callable  # (tensor, indices): from axis 0
    any: Callable  # (bool tensor, axis)
    all: Callable  # (bool tensor, axis)
    count: Callable  # (bool tensor, axis or list of axes): how many are True, as integers
    first: Callable  # (bool tensor, axis): index of the first True, 0 if there is none
    sum: Callable  # (tensor, axis)
    max: Callable  # (tensor, axis)
    cumsum: Callable  # (tensor, axis)


NUMPY = Operations(
    where=np.where,
    pad=np.pad,
    concat=np.concatenate,
    take=lambda values, indices: np.take(values, indices, axis=0),
    any=np.any,
    all=np.all,
    count=lambda values, axis: np.count_nonzero(values, axis=axis),
    first=np.argmax,
    sum=np.sum,
    max=np.max,
    cumsum=np.cumsum,
)


class Beams(NamedTuple):
    """A batch as a rule sees it: the tokens so far, and what it keeps itself.

    The tokens of an impossible beam, whose log-probability is -inf, are arbitrary.
    """

    tokens: Tensor  # int32 [B, W, t], without BOS
    index: Any  # t, an int or a scalar tensor: in TensorFlow, no shape says it
    max_lengths: Tensor  # int32 [B], length limits, at least 1, EOS counted
    context: Nest  # of the rule, [B, ...], gathered as sentences leave the batch
    state: Nest  # of the rule, [B, W, ...], gathered as beams are chosen
    ops: Operations


class NextToken(NamedTuple):
    """A rule's demands on the next token; None adds no operation to the search.

    Whatever the rules demand, PAD and BOS never come. Excluding tokens does not renormalise
    the probabilities of the others.

    Example:
        >>> import numpy as np
        >>> tf_transformer.NextToken(forbidden=np.array([7, 8])).allowed is None
        True
    """

    forced: Tensor | None = None  # int32 [B, W] or [B, 1], the token that must come, or PAD
    forbidden: Tensor | None = None  # int32 [B, W, R], [B, 1, R] or [R], or PAD: must not come
    allowed: Tensor | None = None  # bool [B, W, V], [B, 1, V] or [V]: tokens that may come
    must_continue: Tensor | None = None  # bool [B, W] or [B, 1]: EOS must not come


class Rule(ABC):
    """A rule of the search, for `Translator.translate`: says which token may come next.

    A subclass has `next_token`, and the other methods if it needs them: `context` reads the
    texts, before the search; a state describes the tokens so far, where reading all of them at
    every step would take long. Both are nests: a tensor, or tuples and dictionaries of them.
    Sizes B, W and t, and `Beams` and `NextToken`, are those of `tf_transformer.decoding.rules`.

    A rule computes with `beams.ops`, in TensorFlow or NumPy, and operators of tensors. If it
    uses TensorFlow itself, LiteRT refuses it; an export has its search inside, and refuses
    every rule. A compiled search is kept for each rule, by its hash.

    Precedence: a forced token comes whatever is forbidden. Of several, the first counts: EOS at
    the length limit, the prefix, slots, and then the rules in their order. If nothing is left,
    a beam ends without a hypothesis; a sentence without one has the blank translation of 0
    tokens and the lowest float32 as score.

    Example:
        >>> import tf_transformer
        >>> class NoFullStop(tf_transformer.Rule):
        ...     def __init__(self, tokenizer):
        ...         self.id = tokenizer.vocabulary("target").index(".")
        ...     def next_token(self, beams):
        ...         return tf_transformer.NextToken(forbidden=[self.id])
        >>> translator = tf_transformer.load("runs/mine")
        >>> rule = NoFullStop(translator.tokenizer)
        >>> translator.translate("Good morning.", rules=[rule])
        '...'
    """

    def context(self, texts: Sequence[str]) -> Nest:
        """Returns what the rule must know about each text, as arrays [B, ...].

        The texts are those given to `translate`. Structure, types and numbers of axes never
        change; they are read from `context([""])`.
        """
        return ()

    def initial_state(self, beams: Beams) -> Nest:
        """Returns the state before the first token, tensors [B, W, ...]; t is 0."""
        return ()

    def next_state(self, beams: Beams) -> Nest:
        """Returns the state after a step, which has added the last token of each beam.

        The state in `beams` is that of the beam that was extended.
        """
        return beams.state

    @abstractmethod
    def next_token(self, beams: Beams) -> NextToken:
        """Returns what the rule demands of the token after those in `beams`."""


Applied = tuple[Rule, Nest]  # a rule and its context of a batch


# --- Rules of every search ---------------------------------------------------------------


class EndsAtLimit(Rule):
    """Forces EOS at the length limit; every search has this rule, as its first."""

    def next_token(self, beams: Beams) -> NextToken:
        """Returns EOS for sentences whose next token is their last."""
        must_end = beams.max_lengths <= beams.index + 1
        return NextToken(forced=beams.ops.where(must_end, EOS_ID, PAD_ID)[:, np.newaxis])


class MinLengths(Rule):
    """Excludes EOS in hypotheses of too few tokens; context: the minima, int32 [B]."""

    def next_token(self, beams: Beams) -> NextToken:
        """Returns which sentences are still too short with another token."""
        return NextToken(must_continue=(beams.context > beams.index + 1)[:, np.newaxis])


class Prefixes(Rule):
    """Forces the first tokens; context: int32 [B, P], PAD after a shorter one.

    They count in length and log-probability. EOS at the limit cuts them.
    """

    def next_token(self, beams: Beams) -> NextToken:
        """Returns the prefix's token at this position, or PAD."""
        # One column, or none after the longest prefix: the sum is then 0, which is PAD.
        column = beams.context[:, beams.index : beams.index + 1]
        return NextToken(forced=beams.ops.sum(column, axis=1)[:, np.newaxis])


@dataclass(frozen=True)
class NoRepeatedNgrams(Rule):
    """Forbids every token that would repeat an n-gram of its hypothesis."""

    size: int  # n

    def next_token(self, beams: Beams) -> NextToken:
        """Returns the tokens after each earlier occurrence of the last n - 1 tokens."""
        tokens, size = beams.tokens, self.size
        repeated = True
        for back in range(size - 1, 0, -1):
            last = tokens[..., -back : 1 - back or None]  # [B, W, 1]
            repeated &= tokens[..., size - 1 - back : -back] == last  # [B, W, R]
        # R is t - n + 1, or 0.
        followers = beams.ops.where(repeated, tokens[..., size - 1 :], PAD_ID)
        return NextToken(forbidden=followers)


class Slots(Rule):
    """Has each slot of the source come as often as it stands there, before EOS, and no other.

    When the tokens up to the limit suffice just for those that are left, these come in their
    order. The context, int32 [B, 9], is how often each is in the source; the state, int32
    [B, W, 9], how often it must still come.
    """

    def __init__(self, ids: np.ndarray) -> None:
        self.ids = ids  # int32 [9, F], of the target's vocabulary

    def initial_state(self, beams: Beams) -> Nest:
        """Returns the numbers in the source, for each beam."""
        return beams.context[:, np.newaxis] - slot_counts(beams.tokens, self.ids, beams.ops)

    def next_state(self, beams: Beams) -> Nest:
        """Returns the numbers without the last token of each beam."""
        return beams.state - slot_counts(beams.tokens[..., -1:], self.ids, beams.ops)

    def next_token(self, beams: Beams) -> NextToken:
        """Returns the slot that is due, and those that are not in the source."""
        ops, waiting = beams.ops, beams.state > 0  # [B, W, 9]
        number = ops.sum(ops.where(waiting, beams.state, 0), axis=-1)  # [B, W]
        room = (beams.max_lengths - beams.index)[:, np.newaxis]  # [B, 1], with EOS
        is_due = (number > 0) & (number >= room - 1)
        first = ops.take(self.ids[:, -1], ops.first(waiting, axis=-1))
        others = [ops.where(waiting, PAD_ID, form) for form in self.ids.T]  # [B, W, 9]
        return NextToken(
            forced=ops.where(is_due, first, PAD_ID),
            forbidden=ops.concat(others, axis=-1),  # [B, W, 9 F]
            must_continue=number > 0,
        )


class OnlyTokens(Rule):
    """Allows only these tokens, bool [V]."""

    def __init__(self, allowed: Tensor) -> None:
        self.allowed = allowed

    def next_token(self, beams: Beams) -> NextToken:
        """Returns the same tokens at every step."""
        return NextToken(allowed=self.allowed)


def slot_counts(ids: Tensor, slot_ids: np.ndarray, ops: Operations) -> Tensor:
    """Returns how often each slot [9, F] is in ids, in any form: [..., t] -> int [..., 9]."""
    equal = ids[..., np.newaxis, :, np.newaxis] == slot_ids[:, np.newaxis]  # [..., 9, t, F]
    return ops.count(equal, (-2, -1))


# --- Several rules together --------------------------------------------------------------


@dataclass(frozen=True)
class Rulebook:
    """The rules of a search, those that force a token in order of precedence.

    A search's state has `tokens`, `max_lengths`, and a tuple of `contexts` and of `rule_states`
    with one nest for each rule.
    """

    rules: tuple[Rule, ...]
    ops: Operations

    def initial_states(self, state: Any) -> tuple[Nest, ...]:
        """Returns the state of each rule before the first token."""
        return tuple(rule.initial_state(beams) for rule, beams in self._beams(state, 0))

    def next_states(self, state: Any, index: Any) -> tuple[Nest, ...]:
        """Returns the states after the last of the tokens, at position `index`.

        Those in `state` have been gathered, but do not count that token.
        """
        if not any(map(_leaves, state.rule_states)):
            return state.rule_states
        return tuple(rule.next_state(beams) for rule, beams in self._beams(state, index + 1))

    def next_token(self, state: Any, index: Any) -> NextToken:
        """Returns what all rules together demand of the token at position `index`."""
        found = NextToken()
        for rule, beams in self._beams(state, index):
            found = _both(found, rule.next_token(beams), beams)
        return found

    def _beams(self, state: Any, index: Any) -> Iterator[tuple[Rule, Beams]]:
        each = zip(self.rules, state.contexts, state.rule_states, strict=True)
        for rule, context, own in each:
            yield rule, Beams(state.tokens, index, state.max_lengths, context, own, self.ops)


def _both(one: NextToken, other: NextToken, beams: Beams) -> NextToken:
    """Returns what two rules demand together; the first goes before the other."""
    ops, width = beams.ops, beams.tokens.shape[1]
    forbidden: Any = other.forbidden
    shape = getattr(forbidden, "shape", [None])
    if getattr(shape, "rank", 0) is None:  # TensorFlow cannot tell how many axes there are
        forbidden.set_shape([None, width, None])
    elif forbidden is not None and [*shape][1:2] != [width]:
        zeros = 0 * beams.max_lengths[:, np.newaxis, np.newaxis]  # [B, 1, 1]
        forbidden = np.zeros([width, 1], np.int32) + zeros + forbidden  # [B, W, R]
    return NextToken(
        _joined(lambda a, b: ops.where(a != PAD_ID, a, b), one.forced, other.forced),
        _joined(lambda a, b: ops.concat([a, b], -1), one.forbidden, forbidden),
        _joined(operator.and_, one.allowed, other.allowed),
        _joined(operator.or_, one.must_continue, other.must_continue),
    )


def _joined(join: Callable, one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return join(one, other)


def as_rules(given: Any) -> tuple[Rule, ...]:
    """Returns a user's list of rules; UserError if it is none, or one has no hash."""
    rules = tuple(given) if isinstance(given, list | tuple) else (None,)
    if not all(isinstance(rule, Rule) and rule.__hash__ for rule in rules):
        raise UserError(
            "`rules` must be a list of `tf_transformer.Rule` objects, each with a hash (a "
            f"dataclass must be frozen). Received: {shortened(repr(given))}."
        )
    return rules


def needs_tensorflow(rule: Rule) -> bool:
    """Tells whether a rule computes in TensorFlow itself: tries it with arrays, on one text."""
    context, lengths = rule.context([""]), np.array([2], np.int32)
    beams = Beams(np.zeros([1, 1, 0], np.int32), 0, lengths, context, (), NUMPY)
    beams = beams._replace(state=rule.initial_state(beams))
    later = beams._replace(tokens=np.full([1, 1, 1], EOS_ID, np.int32), index=1)
    made = (context, beams.state, tuple(rule.next_token(beams)), rule.next_state(later))
    return any(type(leaf).__module__.startswith("tensorflow") for leaf in _leaves(made))


def _leaves(nest: Nest) -> list[Tensor]:
    """Returns the tensors of a nest."""
    if isinstance(nest, dict):
        nest = tuple(nest.values())
    if isinstance(nest, tuple | list):
        return [leaf for part in nest for leaf in _leaves(part)]
    return [nest]
