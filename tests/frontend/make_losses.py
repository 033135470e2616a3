"""Makes losses.safetensors.gz: values and gradients of PyTorch.

Weights and labels are integers where PyTorch has no gradient for them.
"""
import numpy as np
import torch
import torch.nn.functional as F

from make_values import Section

s = Section('losses')
REDUCTIONS = ('mean', 'sum', 'none')
for dtype in (np.float32, np.float64):
    logits = s.normal((6, 5), dtype, 3)
    labels = np.array([0, 4, 2, 1, 2, 3])
    some = np.array([0, 4, -1, 1, -1, 3])
    weight = np.array([2, 1, 3, 1, 4], np.int32)
    planes, marks = s.normal((2, 5, 3, 2), dtype), s.rng.integers(0, 5, (2, 3, 2))
    target = torch.softmax(torch.from_numpy(s.normal((6, 5), dtype)), -1).numpy()

    def each(case, f, *inputs):
        s.add_torch(case, lambda *t: [f(*t, reduction=r) for r in REDUCTIONS], *inputs)

    s.add_torch('cross_entropy_last', F.cross_entropy, logits, labels)
    each('cross_entropy', F.cross_entropy, logits, labels)
    each('cross_entropy', F.cross_entropy, planes, marks)
    alone = F.cross_entropy(torch.from_numpy(logits[0]), torch.tensor(2)).numpy()
    s.add('cross_entropy', [logits[0], np.array(2)], [alone] * 3)
    each('cross_entropy_options', lambda x, y, w, reduction: F.cross_entropy(
        x, y, w.to(x.dtype), ignore_index=-1, label_smoothing=0.1, reduction=reduction), logits, some, weight)
    each('cross_entropy_smooth', lambda x, y, reduction: F.cross_entropy(
        x, y, ignore_index=-1, label_smoothing=0.2, reduction=reduction), logits, some)
    each('cross_entropy_probabilities', lambda x, y, w, reduction: F.cross_entropy(
        x, y, w.to(x.dtype), label_smoothing=0.1, reduction=reduction), logits, target, weight)
    each('sparse_categorical', lambda x, y, reduction: F.cross_entropy(
        x.movedim(-1, 1), y, ignore_index=-1, label_smoothing=0.1, reduction=reduction),
        s.normal((2, 3, 5), dtype), np.array([[0, -1, 2], [4, 3, -1]]))
    log_p = torch.log_softmax(torch.from_numpy(logits), -1).numpy()
    each('nll', F.nll_loss, log_p, labels)
    each('nll_options', lambda x, y, w, reduction: F.nll_loss(
        x, y, w.to(x.dtype), ignore_index=-1, reduction=reduction), log_p, some, weight)
    p = np.array([0.1, 0.9, 0.5, 1e-6, 0.99, 0.3, 0.7], dtype)
    y = np.array([0, 1, 0, 0, 1, 1, 0], np.int32)
    soft = s.rng.uniform(0, 1, 7).astype(dtype)
    each('binary_cross_entropy', lambda x, t, reduction: F.binary_cross_entropy(
        x, t.to(x.dtype), reduction=reduction), p, y)
    # 0 and 1 themselves: PyTorch's gradient is a bound as well, but of another size.
    s.add_torch('binary_cross_entropy_edge', lambda x, t: F.binary_cross_entropy(
        x.detach(), t.to(x.dtype), reduction='none'), np.array([0, 1, 0, 1], dtype), np.array([0, 1, 1, 0], np.int32))
    x = np.array([0, 2, -3, 80, -80, 200, 0.5], dtype)
    each('binary_cross_entropy_logits', F.binary_cross_entropy_with_logits, x, soft)
    each('binary_cross_entropy_weighted', lambda a, t, w, reduction: F.binary_cross_entropy_with_logits(
        a, t, pos_weight=w.to(a.dtype), reduction=reduction), s.normal((2, 7), dtype), np.stack([soft, 1 - soft]),
        np.array([1, 2, 3, 1, 2, 3, 1], np.int32))
    a, b = s.normal((3, 4), dtype, 2), s.normal((3, 4), dtype, 2)
    a[0, 0] = b[0, 0]
    each('mse', F.mse_loss, a, b)
    each('l1', F.l1_loss, a, b)
    each('smooth_l1', lambda x, t, reduction: F.smooth_l1_loss(x, t, reduction=reduction, beta=0.7), a, b)
    each('huber', lambda x, t, reduction: F.huber_loss(x, t, reduction=reduction, delta=0.7), a, b)
    q = torch.log_softmax(torch.from_numpy(a), -1).numpy()
    r = torch.softmax(torch.from_numpy(b), -1).numpy()
    each('kl_div', lambda x, t, reduction: F.kl_div(x, t, reduction=reduction), q, r)
    r[0, 0] = 0
    each('kl_div_zero', lambda x, t, reduction: F.kl_div(x, t.detach(), reduction=reduction), q, r)
half = s.normal((3, 4), np.float16)
y = s.normal((3, 4), np.float16)
s.add('mse', [half, y], [np.float16(((half.astype(float) - y) ** 2).mean()),
                         np.float16(((half.astype(float) - y) ** 2).sum()),
                         ((half.astype(float) - y) ** 2).astype(np.float16)])
s.add('l1', [np.array([1, 5], np.int32), np.array([4, 3], np.int32)],
      [np.float32(2.5), np.float32(5), np.array([3, 2], np.float32)])
s.add('mse', [np.zeros((0, 2), np.float32)] * 2,
      [np.float32(np.nan), np.float32(0), np.zeros((0, 2), np.float32)])
s.save()
