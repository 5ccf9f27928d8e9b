"""The training loop: processes with one thread each, gradients averaged, learning rate driven by the clock."""

# `backward` has no types, but only where torch is installed.
# mypy: warn-unused-ignores=False

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from tokenizers import Tokenizer

from .batches import Batches
from .export import export, load_network
from .network import Network, Shape
from .optimizer import Optimizer
from .small_talk import SmallTalk

BIAS_RATE = 0.002
WARM_UP, DECAY_FROM, LAST_FACTOR = 0.01, 0.45, 0.01
EXPORT_SECONDS = 240.0


@dataclass(frozen=True)
class Plan:
    """What every process must know."""

    out: Path
    work: Path
    seed: int
    seconds: float
    world: int
    started: float
    start: Path | None


def rate_factor(progress: float) -> float:
    """Warm-up, then constant, then linear down to LAST_FACTOR at progress 1."""
    if progress < WARM_UP:
        return 0.05 + 0.95 * progress / WARM_UP
    left = (1 - progress) / (1 - DECAY_FROM)
    return max(LAST_FACTOR, min(1.0, left))


def train_process(rank: int, plan: Plan, talk: SmallTalk) -> None:
    """One of `plan.world` processes; process 0 also reports and exports."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    store = f"file://{plan.work / 'rendezvous'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=plan.world, timeout=timedelta(minutes=10))
    torch.manual_seed(plan.seed)
    tokenizer = Tokenizer.from_file(str(plan.work / "tokenizer.json"))
    network = load_network(plan.start).train() if plan.start else Network(Shape())
    parameters = list(network.parameters())
    optimizer = Optimizer(network, rank, plan.world)
    routers = network.routers()
    step, tokens, smooth, exported, progress = 0, 0, math.nan, time.time(), 0.0
    for ids, learned in Batches(tokenizer, talk, plan.seed * 1000 + rank + 1):
        loss = network.loss(ids, learned)
        loss.backward()  # type: ignore[no-untyped-call]
        progress = (time.time() - plan.started) / plan.seconds
        counts = torch.stack([router.counts for router in routers])
        extra = torch.tensor([progress, loss.item(), float(ids.numel())])
        grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([*(grad.flatten() for grad in grads), counts.flatten(), extra])
        dist.all_reduce(flat)
        flat /= plan.world
        progress, mean_loss, rows = flat[-3:].tolist()
        if math.isfinite(mean_loss) and bool(flat.isfinite().all()):
            *parts, mean_counts, _ = flat.split([*(grad.numel() for grad in grads), counts.numel(), len(extra)])
            for grad, part in zip(grads, parts, strict=True):
                grad.copy_(part.view_as(grad))
            optimizer.step(rate_factor(progress))
            for router, used in zip(routers, mean_counts.view_as(counts), strict=True):
                router.expert_bias += BIAS_RATE * rate_factor(progress) * torch.sign(used.mean() - used)
        elif rank == 0:
            print(f"step {step}: not finite, left out", flush=True)
        for grad in grads:
            grad.zero_()
        step += 1
        tokens += int(rows) * plan.world
        smooth = mean_loss if math.isnan(smooth) else 0.97 * smooth + 0.03 * mean_loss
        done = progress >= 1
        if rank == 0:
            if step % 20 == 0 or done:
                seconds = time.time() - plan.started
                report = f"{tokens / 1e6:.2f} M tokens, loss {smooth:.4f}, rate x{rate_factor(progress):.3f}"
                print(f"step {step}: {seconds / 60:.1f} min, {report}", flush=True)
            if time.time() - exported > EXPORT_SECONDS or done:
                export(network, tokenizer, plan.out,
                       f"step {step}, {tokens} tokens, loss {smooth:.4f}, {'final' if done else 'still training'}")
                exported = time.time()
        if done:
            break
    dist.destroy_process_group()


