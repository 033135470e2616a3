"""Random cases of losses, transforms, attention and other composed operators, for fuzz.py."""

import numpy as np


def register(maker, Case, FLOATS, INTS):
    """Registers a function (draw, name) -> Case for each operator."""
    @maker("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
    def loss(d, name):
        classes, rest = d.int(2, 5), d.shape(0, 2, 3)
        shape = (d.int(1, 3), classes) + rest
        labels = d.ints(shape[:1] + rest, np.int64, 0, classes - 1)
        weights = np.abs(d.float((classes,))) + 0.1
        ignored = d.maybe(d.int(0, classes - 1))
        if ignored is not None and (labels == ignored).all():
            ignored = None
        return Case(name, [d.float(shape), labels] + ([weights.astype(np.float32)] if d.int(0, 1) else []),
                    opset=13, outputs=1, ignore_index=ignored, reduction=d.one("none", "sum", "mean"))

    @maker("DFT", "STFT", "HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix")
    def signal(d, name):
        scalar = lambda v, t=np.int64: np.asarray(v, t)
        if name == "DFT":
            x = d.float((2, d.int(2, 9), d.int(1, 2)))
            one = d.int(0, 1) if x.shape[2] == 1 else 0
            return Case(name, [x, d.maybe(scalar(d.int(2, 9)), 0.3), scalar(1)], opset=20, fixed={1, 2}, onesided=one,
                        inverse=d.maybe(1) if not one and x.shape[2] == 2 else None)
        if name == "STFT":
            length = d.int(2, 6)
            return Case(name, [d.float((2, 16, 1)), scalar(d.int(1, 4)), d.maybe(d.float((length,))), scalar(length)],
                        opset=17, fixed={1, 3}, onesided=d.maybe(d.int(0, 1)))
        if name == "MelWeightMatrix":
            return Case(name, [scalar(8), scalar(64), scalar(8000), scalar(10.0, np.float32), scalar(3900.0, np.float32)],
                        opset=17, fixed={0, 1, 2, 3, 4})
        return Case(name, [scalar(d.int(2, 12))], opset=17, fixed={0}, periodic=d.maybe(d.int(0, 1)))

    @maker("Attention")
    def attention(d, name):
        b, kv, rep, lq, lk, size, vsize = 2, d.one(1, 2), d.one(1, 2), d.int(1, 4), d.int(1, 5), d.one(2, 4), d.one(2, 3)
        past = d.maybe(d.int(1, 3))
        q, k, v = d.float((b, kv * rep, lq, size)), d.float((b, kv, lk, size)), d.float((b, kv, lk, vsize))
        total = lk + (past or 0)
        mask = d.float((lq, total)) if d.int(0, 1) else d.any((lq, total), np.bool_) | np.eye(lq, total, dtype=bool)
        inputs = [q, k, v, d.maybe(mask)]
        if past:
            inputs += [d.float((b, kv, past, size)), d.float((b, kv, past, vsize))]
        return Case(name, inputs, opset=24, outputs=3 if past else 1, is_causal=d.maybe(1), scale=d.maybe(0.3),
                    softcap=d.maybe(2.0, 0.3))

    @maker("RotaryEmbedding")
    def rotary(d, name):
        b, heads, steps, size = 2, 2, d.int(1, 4), 4
        part = d.maybe(2, 0.3)
        half = (part or size) // 2
        ids = d.maybe(d.ints((b, steps), np.int64, 0, 7))
        table = (8, half) if ids is not None else (b, steps, half)
        x = d.float((b, heads, steps, size))
        if d.int(0, 1):
            x = d.float((b, steps, heads * size))
        return Case(name, [x, d.float(table), d.float(table), ids], opset=23, interleaved=d.maybe(1),
                    rotary_embedding_dim=part, num_heads=heads if x.ndim == 3 else None)

    @maker("Det")
    def det(d, name):
        n = d.int(1, 4)
        return Case(name, [d.float(d.shape(0, 2, 3) + (n, n))], opset=22)

    @maker("MaxUnpool")
    def max_unpool(d, name):
        x = d.float((1, 2, 2, 3))
        where = np.sort(d.np.permutation(2 * 4 * 6)[:12]).reshape(x.shape).astype(np.int64)
        return Case(name, [x, where], opset=22, kernel_shape=[2, 2], strides=[2, 2])

    @maker("Col2Im")
    def col2im(d, name):
        block, image = (d.int(1, 3), d.int(1, 3)), (d.int(4, 6), d.int(4, 6))
        strides = [d.int(1, 2), d.int(1, 2)]
        count = int(np.prod([(n - k) // s + 1 for n, k, s in zip(image, block, strides)]))
        return Case(name, [d.float((2, 2 * block[0] * block[1], count)), np.array(image, np.int64),
                           np.array(block, np.int64)], opset=18, strides=strides, fixed={1, 2})
