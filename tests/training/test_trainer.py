"""Training as a whole, on a minimal task: what it writes and chooses, and exact resuming."""

import itertools
import json
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from fake_task import FakeTask, batch, compiled_model, result_of
from replicas import batch as sentences
from replicas import dataset as sentences_dataset
from replicas import strategy_of, transformer
from tensorflow.python.framework.config import disable_op_determinism

from tf_transformer.base.errors import UserError
from tf_transformer.config import Config, TrainingConfig
from tf_transformer.fast.programs import Program
from tf_transformer.models.transformer import Transformer
from tf_transformer.reports.run_card import describe_origin
from tf_transformer.run import Run
from tf_transformer.run.best import read_marks
from tf_transformer.run.checkpoints import is_valid, load_weights, read_arrays, save_state
from tf_transformer.run.run import evaluation_of
from tf_transformer.training.devices import Workers
from tf_transformer.training.progress import TrainingProgress
from tf_transformer.training.sessions import Budget, Interrupted, Stopper
from tf_transformer.training.trainer import Result, Trainer, make_optimizer, padding

RECIPE = {
    "steps": 6,
    "evaluate_every": 2,
    "warmup_steps": 4,
    "keep_last": 2,
    "average_last": 2,
    "label_smoothing": 0.1,
}

MEASURED = (
    "step",
    "learning_rate",
    *("loss", "perplexity", "accuracy"),
    *("valid_loss", "valid_perplexity", "valid_accuracy"),
)


def open_run(path: Path, **changes: object) -> Run:
    return Run.create_or_resume(path, Config(training=TrainingConfig(**RECIPE | changes)))


def rising() -> FakeTask:
    return FakeTask(itertools.count(10.0))


def train_session(
    path: Path,
    task: FakeTask,
    stopper: Stopper | None = None,
    replicas: int = 1,
    **changes: object,
) -> tuple[Run, Result]:
    """Trains in a new session, as if in a new process."""
    keras.utils.set_random_seed(1)
    run, workers = open_run(path, **changes), Workers(strategy_of(replicas))
    return run, Trainer(run, task, workers, stopper).train()


def train_run(*arguments: object, **changes: object) -> Run:
    """Returns only the run of a `train_session`."""
    return train_session(*arguments, **changes)[0]


def assert_same_training(run: Run, other: Run, step: int = 6) -> None:
    """Compares weights, optimizer, dropout seeds and all measurements except times."""
    for file in (f"step-{step:08d}.npz", f"state-{step:08d}.npz"):
        contents = [read_arrays(r.checkpoints.path / file) for r in (run, other)]
        for content in contents:
            content.pop("progress/period_seconds", None)
            content.pop("score/valid_bleu", None)  # the task counts its evaluations
        np.testing.assert_equal(*contents)
    for one, two in zip(run.history(), other.history(), strict=True):
        for name in MEASURED:
            assert one[name] == two[name], name


def losses(run: Run, path: Path) -> dict[str, float]:
    """Evaluates a fresh model with these weights on the dev set."""
    model = compiled_model(run.config)
    load_weights(path, model)
    return model.evaluate(rising().validation_data(), return_dict=True, verbose=0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Run:
    """An uninterrupted run of 6 steps."""
    return train_run(tmp_path_factory.mktemp("runs") / "whole", rising())


@pytest.fixture
def copied(whole, tmp_path) -> Run:
    """A copy of the whole run, to resume."""
    return Run.open(shutil.copytree(whole.path, tmp_path / "copied"))


def test_an_evaluation_leaves_a_record_and_a_checkpoint(whole):
    assert [record["step"] for record in whole.history()] == [2, 4, 6]
    assert whole.checkpoints.steps() == [4, 6]  # keep_last
    assert all(is_valid(path) for path in whole.checkpoints.path.iterdir())
    assert any(whole.logs.iterdir())


def test_a_record_holds_the_measurements(whole):
    record = whole.history()[-1]
    assert record["valid_bleu"] == 12.0
    assert record["valid_exact"] == 0.12
    assert record["valid_perplexity"] < np.exp(record["valid_loss"])  # without label smoothing
    assert 0 <= record["valid_accuracy"] <= 1
    assert record["train_seconds"] > 0
    seen = record["tokens_per_second"] * record["train_seconds"]
    assert seen == pytest.approx((4 * 4 - 2) + (4 * 5 - 2))  # batches 4 and 5 without padding


def test_the_learning_rate_in_a_record_is_that_of_the_next_update(whole):
    rates = [record["learning_rate"] for record in whole.history()]
    expected = [512**-0.5 * min(n**-0.5, n * 4**-1.5) for n in (3, 5, 7)]
    assert rates == pytest.approx(expected)


def test_the_last_record_belongs_to_the_last_weights(whole):
    measured = losses(whole, whole.checkpoints.step_path(6))
    record = whole.history()[-1]
    for name in ("loss", "perplexity", "accuracy"):
        assert record[f"valid_{name}"] == pytest.approx(measured[name])


def test_interrupted_training_resumes_bit_for_bit(tmp_path, whole):
    with pytest.raises(KeyboardInterrupt):
        train_run(tmp_path, FakeTask(iter([10.0, KeyboardInterrupt()])))
    assert open_run(tmp_path).checkpoints.steps() == [2]
    assert_same_training(train_run(tmp_path, rising()), whole)


def test_training_resumes_bit_for_bit_within_a_period(tmp_path, whole):
    """So do the means of the training loss, which are in the records."""
    with pytest.raises(Interrupted, match="at step"):
        train_run(tmp_path, rising(), Stopper(Budget(steps=3)))
    assert open_run(tmp_path).checkpoints.state_steps()[-1] == 3
    assert_same_training(train_run(tmp_path, rising()), whole)


def test_training_on_two_devices_resumes_bit_for_bit_and_on_one_with_the_same_sums(tmp_path):
    whole = train_run(tmp_path / "whole", rising(), replicas=2, evaluate_every=6)
    with pytest.raises(Interrupted, match="at step 3"):
        stopper = Stopper(Budget(steps=3))
        train_run(tmp_path / "two", rising(), stopper, replicas=2, evaluate_every=6)
    shutil.copytree(tmp_path / "two", tmp_path / "one")
    assert_same_training(
        train_run(tmp_path / "two", rising(), replicas=2, evaluate_every=6), whole
    )
    (record,) = train_run(tmp_path / "one", rising(), evaluate_every=6).history()
    tokens = record["tokens_per_second"] * record["train_seconds"]
    assert tokens == pytest.approx(
        sum((labels > 0).sum() for _, labels in map(batch, range(6)))
    )


class SentenceTask(FakeTask):
    """A small Transformer with dropout."""

    shapes = ((4, 4),)

    def build_model(self) -> Transformer:
        return transformer(dropout=0.3)

    def training_data(self, start_step, replicas=(0,), num_replicas=1):
        numbers = range(3 * start_step, 3 * start_step + 27, 3)
        return sentences_dataset([sentences(4, number) for number in numbers])

    def validation_data(self, replicas=(0,), num_replicas=1):
        return sentences_dataset([sentences(4, 0)] * 2)


def test_programs_are_compiled_before_the_first_step_and_leave_no_trace(
    tmp_path, monkeypatch, caplog
):
    """Neither in a new nor in a resumed training; one that is over has none compiled."""
    caplog.set_level("INFO", "tf_transformer")
    recipe = {"deterministic": True, "jit_compile": True, "ema_decay": 0.9, "clip_norm": 1.0}
    tf.config.experimental.enable_op_determinism()
    try:
        with pytest.raises(Interrupted, match="at step 3"):
            task = SentenceTask(itertools.count(10.0))
            train_run(tmp_path / "a", task, Stopper(Budget(steps=3)), **recipe)
        resumed = train_run(tmp_path / "a", SentenceTask(itertools.count(10.0)), **recipe)
        train_run(tmp_path / "a", SentenceTask(itertools.count(10.0)), **recipe)
        assert caplog.text.count("compiling 11 programs for 1 shapes") == 2
        monkeypatch.setattr(Trainer, "_compile_programs", lambda trainer: True)
        plain = train_run(tmp_path / "b", SentenceTask(itertools.count(10.0)), **recipe)
    finally:
        disable_op_determinism()
    assert_same_training(resumed, plain)


def test_training_goes_on_without_xla_where_it_cannot_compile(tmp_path, monkeypatch, caplog):
    def fail(*_: object) -> None:
        raise tf.errors.InternalError(None, None, "libdevice not found at ./libdevice.10.bc")

    monkeypatch.setattr(Program, "_backward", fail)
    runs = [
        train_run(tmp_path / str(jit), SentenceTask(itertools.count(10.0)), jit_compile=jit)
        for jit in (False, True)
    ]
    line = "XLA cannot compile (libdevice not found at ./libdevice.10.bc): training goes on"
    assert caplog.text.count(line) == caplog.text.count("goes on") == 1
    assert_same_training(*runs)


def test_a_signal_while_xla_compiles_stops_after_the_program_and_can_be_resumed(
    tmp_path, monkeypatch
):
    """Also where the signal makes the compiler fail: training does not go on without XLA."""
    task = SentenceTask(itertools.count(10.0))
    for name, error in (("a", None), ("b", tf.errors.CancelledError(None, None, "stopped"))):
        stopper, compile_ = Stopper(), Program._backward

        def signalled(program, *tensors, stopper=stopper, error=error, compile_=compile_):
            assert stopper.waiting
            stopper.reason, stopper.status = "Ctrl-C", 130
            if error:
                raise error
            return compile_(program, *tensors)

        with monkeypatch.context() as patch, pytest.raises(Interrupted) as caught:
            patch.setattr(Program, "_backward", signalled)
            train_run(tmp_path / name, task, stopper, jit_compile=True)
        assert str(caught.value) == "stopped while XLA compiled by Ctrl-C"
        assert caught.value.status == 130
    train_run(tmp_path / "a", SentenceTask(itertools.count(10.0)), jit_compile=True)


def test_padding_has_each_shape_for_each_replica():
    spec = SentenceTask(iter(())).training_data(0).element_spec
    batches = list(padding(spec, [(4, 4), (4, 6)], range(2), 2).take(5))
    assert [labels.shape for _, labels in batches] == [(4, 4), (4, 4), (4, 6), (4, 6), (4, 4)]
    assert not any(np.any(array) for array in tf.nest.flatten(batches))


def test_training_resumes_bit_for_bit_with_more_steps(tmp_path, whole):
    train_run(tmp_path, rising(), steps=4)
    assert_same_training(train_run(tmp_path, rising(), steps=6), whole)


def test_a_damaged_state_costs_only_the_steps_since_the_previous_one(copied, whole, caplog):
    path = copied.checkpoints.state_path(6)
    path.write_bytes(path.read_bytes()[:-100])
    assert_same_training(train_run(copied.path, rising()), whole)
    assert "checkpoint of step 6 is damaged" in caplog.text


class LateSignal(Workers):
    """Two workers with equal votes; a signal comes right after the vote that ends a period."""

    def __init__(self, run: Run) -> None:
        super().__init__(strategy_of(2), number=2)
        self.state = run.checkpoints.state_path(2)

    def vote(self, stopper: Stopper, save: bool = False) -> tuple[bool, bool]:
        decision = super().vote(stopper, save)
        if self.state.exists() and not stopper.reason:
            signal.raise_signal(signal.SIGTERM)
        return decision


def test_no_worker_leaves_before_all_have_agreed(tmp_path):
    run = open_run(tmp_path)
    with Stopper() as stopper, pytest.raises(Interrupted, match="at step 3 by SIGTERM"):
        Trainer(run, rising(), LateSignal(run), stopper).train()


def test_training_stops_at_an_exact_step(tmp_path):
    run = train_run(tmp_path, rising(), steps=5)
    assert [record["step"] for record in run.history()] == [2, 4, 5]
    assert run.checkpoints.steps() == [4, 5]
    state = read_arrays(run.checkpoints.state_path(5))
    assert state["optimizer/adam/iteration"] == 5


def test_patience_counts_the_evaluations_of_all_sessions_and_training_stays_ended(tmp_path):
    """A session ends with the scores of the average, 1, and again of the best, 30."""
    train_run(tmp_path, FakeTask(iter([30.0, 20.0, 1.0, 30.0])), steps=4)
    for scores in ([30.0, 1.0, 30.0], [1.0, 30.0]):  # equal is not better
        run = train_run(tmp_path, FakeTask(iter(scores)), steps=100, patience=2)
        assert [record["step"] for record in run.history()] == [2, 4, 6]


def test_a_nan_loss_ends_training_and_costs_no_checkpoint(tmp_path, whole):
    with pytest.raises(
        UserError, match=r"not finite at step 6 \(batch 5\).*training.warmup_steps"
    ):
        train_run(tmp_path, FakeTask(itertools.count(10.0), damaged_step=5))
    run = open_run(tmp_path)
    assert [record["step"] for record in run.history()] == [2, 4]
    assert run.checkpoints.steps() == run.checkpoints.state_steps() == [2, 4]
    assert_same_training(train_run(tmp_path, rising()), whole)


def test_nan_weights_are_not_kept(tmp_path):
    """The loss of the update that breaks them is computed before, and still finite."""
    with pytest.raises(UserError, match="The dev loss is nan at step 1"):
        train_run(tmp_path, rising(), evaluate_every=1, learning_rate_scale=1e38)
    assert Run.open(tmp_path).checkpoints.steps() == []
    assert Run.open(tmp_path).history() == []


def test_a_full_disk_ends_training_and_costs_no_checkpoint(tmp_path, whole, largest_file):
    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in (tmp_path / "checkpoints").iterdir()}

    before: dict[Path, bytes] = {}
    with pytest.raises(UserError, match="Cannot write"), ExitStack() as stack:

        def scores() -> Iterator[float]:
            yield 10.0
            before.update(files())
            stack.enter_context(largest_file(4_000))  # from the second evaluation on
            yield 9.0

        train_run(tmp_path, FakeTask(scores()))
    assert before and before.items() <= files().items()
    assert_same_training(train_run(tmp_path, rising()), whole)


def test_the_best_evaluation_is_kept(tmp_path):
    """Scores of the three evaluations, of the average, and again of the best."""
    task = FakeTask(iter([10.0, 30.0, 20.0, 5.0, 30.0]))
    run, result = train_session(tmp_path, task)
    assert result.metrics["bleu"] == 30.0
    best = read_arrays(run.checkpoints.best)
    assert (best.pop("best/bleu"), best.pop("dev_set")) == (30.0, task.dev_set)
    step = read_arrays(run.checkpoints.step_path(4))
    assert step.pop("score/valid_bleu") == 30.0
    assert step.pop("score/valid_perplexity") == -best.pop("best/perplexity")
    np.testing.assert_equal(best, step)
    assert_model_has_weights_of(task.models[-1], run.checkpoints.best)


def beginning(path: Path, anew: Sequence[str] = ()) -> None:
    """Prepares a run whose weights come from another run."""
    run = open_run(path, init_from="base")
    run.origin.write_text(json.dumps({"sha256": "0", "anew": anew}))


@pytest.mark.parametrize("start", [50.0, 15.0])
def test_the_weights_it_began_with_can_stay_the_best(tmp_path, whole, caplog, start):
    """Scores of the start, the three evaluations, the average, and again of the best."""
    caplog.set_level("INFO")
    beginning(tmp_path)
    task = FakeTask(iter([start, 10.0, KeyboardInterrupt()]))
    with pytest.raises(KeyboardInterrupt):
        train_run(tmp_path, task, init_from="base")
    best = tmp_path / "checkpoints" / "best.npz"
    best.write_bytes(best.read_bytes()[:-9])  # as a start it can be restored
    task = FakeTask(iter([20.0, 30.0, 5.0, max(start, 30.0)]))
    run, result = train_session(tmp_path, task, init_from="base")
    assert_same_training(run, whole)
    assert (
        "step      0  dev perplexity" in caplog.text
        and "best.npz is damaged: restored" in caplog.text
    )
    stays = start == 50.0
    assert ("training gained nothing" in caplog.text) == stays
    best = read_arrays(run.checkpoints.best)
    assert best["best/bleu"] == max(start, 30.0) == result.metrics["bleu"]
    assert evaluation_of(run, run.checkpoints.best)["step"] == 6 * (not stays)
    keras.utils.set_random_seed(1)
    fresh = FakeTask(iter(())).build_model()
    kernel = fresh.layers[1].kernel
    assert np.array_equal(best[f"model/{kernel.path}"], kernel) == stays
    before = [line for line in describe_origin(run) if "before training" in line]
    assert before and f"bleu {start:g}, exact" in before[0]


def test_weights_unfit_for_the_text_are_told_before_any_update(tmp_path, monkeypatch):
    beginning(tmp_path)
    task, build = rising(), FakeTask.build_model

    def build_model(self):
        model = build(self)
        for weight in model.trainable_weights:
            weight.assign(1e38 * weight + 1e38)
        return model

    monkeypatch.setattr(FakeTask, "build_model", build_model)
    expected = "is nan at step 0. No update is made yet: in float32 the weights of base are"
    with pytest.raises(UserError, match=expected):
        train_run(tmp_path, task, init_from="base")


def test_a_start_with_untrained_weights_is_not_scored(tmp_path, whole):
    beginning(tmp_path, ["head"])
    assert_same_training(train_run(tmp_path, rising(), init_from="base"), whole)
    assert not (tmp_path / "checkpoints" / "start.npz").exists()


@pytest.mark.parametrize(
    ("clip_norm", "ways"), [(1.0, ""), (0.0, ".* or training.clip_norm=1")]
)
def test_advice_before_the_first_state_fits(tmp_path, clip_norm, ways):
    expected = f"no state yet: begin again with .*warmup_steps{ways}\\.$"
    with pytest.raises(UserError, match=expected):
        train_run(tmp_path, FakeTask(iter(()), damaged_step=0), clip_norm=clip_norm)


@pytest.mark.parametrize(("step", "score"), [(4, 99.0), (6, 1.0)])
def test_a_changed_score_in_the_records_is_noticed_and_chooses_nothing(
    copied, whole, caplog, step, score
):
    """The weights of steps 4 and 6 are still kept, and so are their scores."""
    changed = [
        record | {"valid_bleu": score} if record["step"] == step else record
        for record in copied.history()
    ]
    copied.write_history(changed)
    assert_same_training(train_run(copied.path, rising(), patience=9), whole)
    assert copied.history() == whole.history()
    np.testing.assert_equal(*(read_arrays(run.checkpoints.best) for run in (copied, whole)))
    (message,) = [m for m in caplog.messages if m.startswith("metrics.jsonl has")]
    true = {4: 11.0, 6: 12.0}[step]
    assert message.endswith(
        f"valid_bleu {score} for step-{step:08d}, whose checkpoint has {true}, which counts"
    )


def test_the_average_is_chosen_if_it_is_better(tmp_path):
    task = FakeTask(iter([10.0, 30.0, 20.0, 40.0]))
    run, result = train_session(tmp_path, task)
    assert result.metrics["bleu"] == 40.0
    best, *last = map(read_arrays, (run.checkpoints.best, *run.checkpoints.last(2)))
    assert (best.pop("best/bleu"), best.pop("dev_set")) == (40.0, task.dev_set)
    assert best.pop("best/perplexity") == -best["record/valid_perplexity"]
    record = {name: best.pop(name) for name in list(best) if name.startswith("record/")}
    assert record["record/valid_bleu"] == 40.0 and record["record/step"] == 6
    assert record["record/weights"] == "average of the last 2 checkpoints"
    for name in best:
        mean = (last[0][name].astype("float64") + last[1][name]) / 2
        np.testing.assert_array_equal(best[name], mean.astype("float32"))
    assert_model_has_weights_of(task.models[-1], run.checkpoints.best)


def assert_model_has_weights_of(model: keras.Model, path: Path) -> None:
    stored = read_arrays(path)
    for variable in model.trainable_variables:
        np.testing.assert_array_equal(variable, stored[f"model/{variable.path}"])


@pytest.fixture
def half_precision() -> Iterator[None]:
    keras.mixed_precision.set_global_policy("mixed_float16")
    yield
    keras.mixed_precision.set_global_policy("float32")


def test_updates_skipped_by_float16_are_made_up_for(tmp_path, half_precision):
    run = open_run(tmp_path, evaluate_every=50, steps=3)
    model = compiled_model(run.config)
    model.optimizer.build(model.trainable_variables)
    model.optimizer.dynamic_scale.assign(2.0**120)  # halved after each overflow, so about 100
    progress = TrainingProgress(steps_per_epoch=FakeTask.steps_per_epoch)
    save_state(run.checkpoints.state_path(0), model, progress.to_arrays())
    trainer = Trainer(run, rising())
    trainer.train()
    assert run.checkpoints.steps()[-1] == 3
    assert trainer.progress.data_step > 90  # skipped updates use up their batches


def test_the_optimizer_is_adam_as_configured():
    training = TrainingConfig(warmup_steps=10, beta_2=0.97, clip_norm=1.0)
    optimizer = make_optimizer(training, d_model=64)
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.9, 0.97, 1e-9)
    assert optimizer.global_clipnorm == 1.0
    assert float(optimizer.learning_rate) == pytest.approx(64**-0.5 * 10**-1.5)
    assert make_optimizer(TrainingConfig(), 64).global_clipnorm is None


DECAY = 0.15


class WeighingTask(FakeTask):
    """Its dev score is the sum of squared weights, which identifies them."""

    def evaluator(self, model: keras.Model) -> Callable[[], Result]:
        return lambda: result_of(sum_of_squares([v.numpy() for v in model.trainable_variables]))


def sum_of_squares(weights: list[np.ndarray]) -> float:
    return sum(float(np.sum(weight.astype("float64") ** 2)) for weight in weights)


def weights(path: Path) -> dict[str, np.ndarray]:
    return read_arrays(path, prefix="model/")


@pytest.fixture(scope="module")
def averaging(tmp_path_factory) -> Run:
    """An uninterrupted run of 6 steps that keeps a moving average."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    return train_run(path, WeighingTask(iter(())), ema_decay=DECAY, keep_last=3)


def test_kept_weights_are_the_moving_average_of_all_steps(tmp_path, averaging):
    """Trains one session per step; its state holds the raw weights."""
    average: dict[str, np.ndarray] = {}
    for step in range(1, 3):  # the decay grows, and stays, at the second
        task = WeighingTask(iter(()))
        run = train_run(tmp_path, task, ema_decay=DECAY, steps=step, evaluate_every=2)
        raw = weights(run.checkpoints.state_path(step))
        decay = min(DECAY, step / (9 + step))
        for name, value in raw.items():
            average[name] = decay * average.get(name, value) + (1 - decay) * value
    kept = weights(run.checkpoints.step_path(2))
    for name, value in kept.items():
        np.testing.assert_allclose(value, average[name], atol=1e-6)
        assert np.abs(value - raw[name]).max() > 1e-4
    np.testing.assert_equal(kept, weights(averaging.checkpoints.step_path(2)))


def test_the_moving_average_is_evaluated(averaging):
    record = averaging.history()[-1]
    path = averaging.checkpoints.step_path(6)
    for name, value in losses(averaging, path).items():
        if name != "tokens":
            assert record[f"valid_{name}"] == pytest.approx(value)
    assert record["valid_bleu"] == pytest.approx(sum_of_squares(list(weights(path).values())))
    raw = weights(averaging.checkpoints.state_path(6))
    assert record["valid_bleu"] != pytest.approx(sum_of_squares(list(raw.values())))


def test_the_best_and_patience_may_depend_on_chrf(tmp_path):
    """By BLEU, the last would be the best, and training would continue."""
    recipe = {"best_by": "chrf", "patience": 2, "steps": 100, "keep_last": 3}
    run = train_run(tmp_path, rising(), **recipe)
    assert [record["step"] for record in run.history()] == [2, 4, 6]
    first = weights(run.checkpoints.step_path(2))
    np.testing.assert_equal(weights(run.checkpoints.best), first)


class OtherDevSet(FakeTask):
    dev_set = "two other batches"


def test_scores_on_an_earlier_dev_set_neither_choose_nor_end_training(tmp_path):
    """The higher scores of the first session would end the second at its first evaluation."""
    train_run(tmp_path, FakeTask(itertools.count(50.0)), steps=4)
    later = OtherDevSet(iter([20.0, 10.0, 5.0, 1.0, 20.0]))
    run = train_run(tmp_path, later, steps=100, patience=2)
    assert [(record["step"], record["dev_set"]) for record in run.history()] == [
        (2, "two batches"), (4, "two batches"),
        (6, "two other batches"), (8, "two other batches"), (10, "two other batches"),
    ]  # fmt: skip
    assert read_marks(run.checkpoints.best).scores["bleu"] == 20.0
