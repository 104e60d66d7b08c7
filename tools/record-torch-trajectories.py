"""Records what PyTorch computes, for the tests of src/parallel to be held to.

    python3 tools/record-torch-trajectories.py [FOLDER]      (default test/fixtures/torch)

Writes optimizers.json, losses.json, schedules.json and models.json. Needs torch alone, runs on the CPU in one thread and takes
seconds. Every number is written so that it reads back as the same double; float32 values are written as the doubles they equal.

Lion is not part of torch: its trajectory is the algorithm of its paper (https://arxiv.org/abs/2302.06675, algorithm 2) in torch's tensors.
"""

import json
import math
import os
import platform
import sys

import torch
import torch.nn.functional as F

STEPS = 50
DTYPES = {"float64": torch.float64, "float32": torch.float32}

torch.manual_seed(8)
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)


def dyadic(*shape, scale=2048, span=512):
    """Random multiples of 1/scale below span/scale: short in JSON and exact in both dtypes."""
    return torch.randint(-span, span + 1, shape).double() / scale


def listed(tensor):
    return tensor.detach().double().reshape(-1).tolist()


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                mean = state["exp_avg"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((mean * beta1 + p.grad * (1 - beta1)).sign_(), alpha=-group["lr"])
                mean.mul_(beta2).add_(p.grad, alpha=1 - beta2)


def sgd(**options):
    return lambda params: torch.optim.SGD(params, foreach=False, **options)


def adamw(**options):
    return lambda params: torch.optim.AdamW(params, foreach=False, **options)


def lion(**options):
    return lambda params: Lion(params, **options)


OPTIMIZERS = {
    "sgd": (sgd, dict(lr=0.05)),
    "sgd with weight decay": (sgd, dict(lr=0.05, weight_decay=0.1)),
    "sgd with momentum": (sgd, dict(lr=0.05, momentum=0.9)),
    "sgd with momentum, dampening and weight decay": (sgd, dict(lr=0.05, momentum=0.8, dampening=0.3, weight_decay=0.02)),
    "sgd with Nesterov's momentum": (sgd, dict(lr=0.05, momentum=0.9, nesterov=True)),
    "sgd with Nesterov's momentum and weight decay": (sgd, dict(lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.02)),
    "adamw": (adamw, dict(lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)),
    "adamw without weight decay": (adamw, dict(lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.0)),
    "lion": (lion, dict(lr=0.003, betas=(0.9, 0.99), weight_decay=0.0)),
    "lion with weight decay": (lion, dict(lr=0.003, betas=(0.95, 0.98), weight_decay=0.3)),
}

STATE_NAMES = ("momentum_buffer", "exp_avg", "exp_avg_sq")


def record_optimizers():
    """Given gradients, so that an error of one step is not magnified by a loss; zeros among them, as unused rows give."""
    count = 24
    initial = dyadic(count)
    gradients = [dyadic(count) * (1 if step % 7 else 16) for step in range(STEPS)]
    for step, gradient in enumerate(gradients):
        gradient[step % count] = 0.0
        gradient[0] = 0.0
    cases = []
    for name, (make, options) in OPTIMIZERS.items():
        for dtype_name, dtype in DTYPES.items():
            p = initial.to(dtype).clone().requires_grad_()
            optimizer = make(**options)([p])
            trajectory = []
            for gradient in gradients:
                p.grad = gradient.to(dtype).clone()
                optimizer.step()
                trajectory.append(listed(p))
            state = {key: listed(optimizer.state[p][key]) for key in STATE_NAMES if torch.is_tensor(optimizer.state[p].get(key))}
            cases.append(dict(name=name, rule=make.__name__, options=options, dtype=dtype_name, trajectory=trajectory, state=state))
    return dict(initial=listed(initial), gradients=[listed(gradient) for gradient in gradients], cases=cases)


def record_losses():
    cases = []
    rows, columns = 9, 5
    weights = dyadic(columns).abs() * 8 + 0.125
    targets = torch.randint(0, columns, (rows,))
    classes = {
        "ordinary logits": dyadic(rows, columns) * 16,
        "large logits": dyadic(rows, columns) * 4096,
        "equal logits": torch.full((rows, columns), 0.75, dtype=torch.float64),
    }
    no_first = weights.clone()
    no_first[0] = 0.0
    for dtype_name, dtype in DTYPES.items():
        prediction = dyadic(rows, columns).to(dtype).requires_grad_()
        wanted = dyadic(rows, columns).to(dtype)
        loss = F.mse_loss(prediction, wanted)
        loss.backward()
        cases.append(
            dict(loss="mse", name="mse", dtype=dtype_name, rows=rows, columns=columns, input=listed(prediction),
                 target=listed(wanted), value=loss.double().item(), gradient=listed(prediction.grad)),
        )
        for name, logits in classes.items():
            for weighting, chosen in {"": None, "weighted ": weights, "weighted with a zero ": no_first}.items():
                x = logits.clone().to(dtype).requires_grad_()
                loss = F.cross_entropy(x, targets, weight=None if chosen is None else chosen.to(dtype))
                loss.backward()
                case = dict(loss="crossEntropy", name=f"{weighting}cross entropy of {name}", dtype=dtype_name, rows=rows,
                            columns=columns, input=listed(x), target=targets.tolist(), value=loss.double().item(),
                            gradient=listed(x.grad))
                if chosen is not None:
                    case["weights"] = listed(chosen)
                cases.append(case)
    return dict(cases=cases)


def record_schedules():
    def rates(make, steps, lr=0.4):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
        schedule = make(optimizer)
        seen = []
        for _ in range(steps):
            seen.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        return seen

    schedulers = torch.optim.lr_scheduler
    warm = lambda optimizer: schedulers.LinearLR(optimizer, start_factor=0.1, end_factor=1.0, total_iters=8)
    cosine = lambda steps: lambda optimizer: schedulers.CosineAnnealingLR(optimizer, T_max=steps, eta_min=0.02)
    both = lambda optimizer: schedulers.SequentialLR(optimizer, [warm(optimizer), cosine(20)(optimizer)], milestones=[8])
    return dict(
        constant=dict(lr=0.4, rates=rates(lambda optimizer: schedulers.ConstantLR(optimizer, factor=1.0), 5)),
        warmUp=dict(lr=0.4, start=0.1, steps=8, rates=rates(warm, 14)),
        cosine=dict(lr=0.4, minimum=0.02, steps=20, rates=rates(cosine(20), 21)),
        warmUpThenCosine=dict(lr=0.4, start=0.1, warmUpSteps=8, minimum=0.02, cosineSteps=20, rates=rates(both, 28)),
    )


def mlp_loss(p, batch, sizes):
    x = batch["input"]
    layers = len(sizes) - 1
    for layer in range(layers):
        x = F.linear(x, p[f"layer{layer}.weight"], p[f"layer{layer}.bias"])
        if layer < layers - 1:
            x = torch.tanh(x)
    return F.mse_loss(x, batch["target"])


def transformer_loss(p, batch, shape):
    """Pre-norm decoder: torch's own layers, norm with eps 1e-5, GELU by tanh, causal attention, no dropout."""
    tokens = batch["tokens"]
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    rows, length = inputs.shape
    width, heads = shape["width"], shape["heads"]
    x = p["token.weight"][inputs] + p["position.weight"][:length]
    for block in range(shape["blocks"]):
        at = lambda name: p[f"block{block}.{name}"]
        normed = F.layer_norm(x, (width,), at("norm1.weight"), at("norm1.bias"), 1e-5)
        split = lambda name: F.linear(normed, at(f"attention.{name}.weight"), at(f"attention.{name}.bias")).view(
            rows, length, heads, width // heads).transpose(1, 2)
        query, key, value = split("query"), split("key"), split("value")
        scores = query @ key.transpose(-1, -2) / math.sqrt(width // heads)
        scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf)
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(rows, length, width)
        x = x + F.linear(mixed, at("attention.output.weight"), at("attention.output.bias"))
        normed = F.layer_norm(x, (width,), at("norm2.weight"), at("norm2.bias"), 1e-5)
        hidden = F.gelu(F.linear(normed, at("mlp.up.weight"), at("mlp.up.bias")), approximate="tanh")
        x = x + F.linear(hidden, at("mlp.down.weight"), at("mlp.down.bias"))
    x = F.layer_norm(x, (width,), p["norm.weight"], p["norm.bias"], 1e-5)
    logits = F.linear(x, p["head.weight"], p["head.bias"])
    return F.cross_entropy(logits.reshape(rows * length, -1), targets.reshape(-1))


def transformer_shapes(shape):
    width, hidden = shape["width"], shape["hidden"]
    shapes = {"token.weight": (shape["vocabulary"], width), "position.weight": (shape["context"], width)}
    for block in range(shape["blocks"]):
        at = lambda name: f"block{block}.{name}"
        for norm in ("norm1", "norm2"):
            shapes[at(f"{norm}.weight")] = shapes[at(f"{norm}.bias")] = (width,)
        for name in ("query", "key", "value", "output"):
            shapes[at(f"attention.{name}.weight")] = (width, width)
            shapes[at(f"attention.{name}.bias")] = (width,)
        shapes[at("mlp.up.weight")], shapes[at("mlp.up.bias")] = (hidden, width), (hidden,)
        shapes[at("mlp.down.weight")], shapes[at("mlp.down.bias")] = (width, hidden), (width,)
    shapes["norm.weight"] = shapes["norm.bias"] = (width,)
    shapes["head.weight"], shapes["head.bias"] = (shape["vocabulary"], width), (shape["vocabulary"],)
    return shapes


def train(shapes, loss_of, batches, rule, options):
    """Trains in float64 from dyadic values; the first step's gradients tell where a model parts."""
    parameters = {name: dyadic(*dims, span=400) + (1.0 if "norm" in name and name.endswith("weight") else 0.0)
                  for name, dims in shapes.items()}
    initial = {name: listed(values) for name, values in parameters.items()}
    for values in parameters.values():
        values.requires_grad_()
    optimizer = {"sgd": sgd, "adamw": adamw}[rule](**options)(list(parameters.values()))
    losses, first_gradients = [], None
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(parameters, batches[step % len(batches)])
        loss.backward()
        first_gradients = first_gradients or {name: listed(values.grad) for name, values in parameters.items()}
        optimizer.step()
        losses.append(loss.item())
    final = {name: listed(values) for name, values in parameters.items()}
    return dict(rule=rule, options=options, initial=initial, firstGradients=first_gradients, losses=losses, final=final)


def record_models():
    sizes = [5, 8, 7, 3]
    mlp_shapes = {}
    for layer in range(len(sizes) - 1):
        mlp_shapes[f"layer{layer}.weight"] = (sizes[layer + 1], sizes[layer])
        mlp_shapes[f"layer{layer}.bias"] = (sizes[layer + 1],)
    batches = [dict(input=dyadic(6, 5) * 4, target=dyadic(6, 3) * 4) for _ in range(4)]
    mlp = train(mlp_shapes, lambda p, batch: mlp_loss(p, batch, sizes), batches, "sgd", dict(lr=0.1, momentum=0.9))
    mlp |= dict(sizes=sizes, batches=[{key: listed(value) for key, value in batch.items()} | dict(rows=6) for batch in batches])

    shape = dict(vocabulary=7, context=6, width=8, heads=2, hidden=12, blocks=2)
    batches = [dict(tokens=torch.randint(0, 7, (3, 7))) for _ in range(4)]
    transformer = train(transformer_shapes(shape), lambda p, batch: transformer_loss(p, batch, shape), batches,
                        "adamw", dict(lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01))
    transformer |= dict(shape=shape, batches=[dict(rows=3, tokens=batch["tokens"].reshape(-1).tolist()) for batch in batches])
    return dict(mlp=mlp, transformer=transformer)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "test", "fixtures", "torch")
    os.makedirs(folder, exist_ok=True)
    versions = dict(torch=torch.__version__, python=platform.python_version(), machine=platform.machine())
    records = dict(optimizers=record_optimizers, losses=record_losses, schedules=record_schedules, models=record_models)
    for name, record in records.items():
        path = os.path.join(folder, f"{name}.json")
        with open(path, "w") as file:
            json.dump(dict(versions=versions, **record()), file, separators=(",", ":"))
            file.write("\n")
        print(f"{path}: {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
