"""Random cases of the domains com.microsoft and ai.onnx.ml, for fuzz.py."""

import numpy as np


def register(maker, Case, FLOATS, INTS):
    """Registers a function (draw, name) -> Case for each operator."""
    @maker("com.microsoft.BiasGelu", "com.microsoft.FastGelu", "com.microsoft.QuickGelu",
           "com.microsoft.FusedMatMul", "com.microsoft.SkipLayerNormalization",
           "com.microsoft.SkipSimplifiedLayerNormalization", "com.microsoft.FusedConv",
           "com.microsoft.MatMulNBits", "com.microsoft.DynamicQuantizeMatMul",
           "com.microsoft.MultiHeadAttention", "com.microsoft.Attention", "com.microsoft.GroupQueryAttention",
           "com.microsoft.QLinearAdd", "com.microsoft.QLinearMul", "com.microsoft.RotaryEmbedding",
           "com.microsoft.EmbedLayerNormalization", "com.microsoft.QLinearSigmoid",
           "com.microsoft.QLinearLeakyRelu", "com.microsoft.MatMulIntegerToFloat", "com.microsoft.QGemm",
           "com.microsoft.QLinearSoftmax", "com.microsoft.QLinearWhere",
           "com.microsoft.QLinearAveragePool")
    def contrib(d, full):
        domain, _, name = full.rpartition(".")
        make = lambda inputs, **more: Case(name, inputs, domain=domain, opset=17, **more)
        b, steps, heads, size = 2, d.int(1, 4), 2, 4
        hidden = heads * size
        x = d.float((b, steps, hidden))
        scale = lambda: np.asarray(d.np.uniform(0.05, 0.3), np.float32)
        if name == "BiasGelu":
            return make([x, d.float((hidden,))])
        if name == "FastGelu":
            return make([x] + ([d.float((hidden,))] if d.int(0, 1) else []))
        if name == "QuickGelu":
            return make([x], alpha=d.maybe(1.1))
        if name == "FusedMatMul":
            ta, tb = d.int(0, 1), d.int(0, 1)
            m, k, n = d.int(1, 4), d.int(1, 4), d.int(1, 4)
            return make([d.float((2, k, m) if ta else (2, m, k)), d.float((2, n, k) if tb else (2, k, n))],
                        transA=ta, transB=tb, alpha=d.maybe(0.5))
        if name == "SkipLayerNormalization":
            return make([x, d.float(x.shape), d.float((hidden,)), d.maybe(d.float((hidden,))),
                         d.maybe(d.float((hidden,)))], epsilon=d.maybe(1e-3))
        if name == "SkipSimplifiedLayerNormalization":
            return make([x, d.float(x.shape), d.float((hidden,)), d.maybe(d.float((hidden,)))], epsilon=1e-5)
        if name == "FusedConv":
            return make([d.float((1, 2, 5, 5)), d.float((3, 2, 3, 3)), d.float((3,))],
                        activation=d.one("Relu", "Tanh", "Sigmoid"), kernel_shape=[3, 3])
        if name == "MatMulNBits":
            k, n, block = d.int(10, 40), d.int(1, 5), 16
            blocks = -(-k // block)
            zero = d.ints((n, (blocks + 1) // 2), np.uint8, 0, 255)
            return make([d.float((3, k)), d.ints((n, blocks, block // 2), np.uint8, 0, 255),
                         d.float((n, blocks), scale=0.1), d.maybe(zero)], K=k, N=n, bits=4, block_size=block, fixed={1, 2, 3})
        if name == "DynamicQuantizeMatMul":
            t = d.one(np.int8, np.uint8)
            return make([d.float((3, 5)), d.ints((5, 4), t), scale(), d.ints((), t), d.maybe(d.float((4,)))], fixed={1, 2, 3})
        if name == "MatMulIntegerToFloat":
            return make([d.ints((3, 5), np.uint8), d.ints((5, 4), np.uint8), scale(), scale(), d.ints((), np.uint8),
                         d.ints((), np.uint8), d.maybe(d.float((4,)))])
        if name == "QGemm":
            m, k, n, ta, tb = d.int(1, 4), d.int(1, 4), d.int(1, 4), d.int(0, 1), d.int(0, 1)
            a, b = d.ints((k, m) if ta else (m, k), np.uint8), d.ints((n, k) if tb else (k, n), np.int8)
            result = [scale(), d.ints((), np.uint8)] if d.int(0, 1) else []
            return make([a, scale(), d.ints((), np.uint8), b, scale(), d.ints((), np.int8),
                         d.ints((n,), np.int32) if d.int(0, 1) else None, *result], transA=ta, transB=tb)
        if name == "QLinearSoftmax":
            return make([d.ints((2, 3, 4), np.uint8), scale(), d.ints((), np.uint8), np.asarray(1 / 256, np.float32),
                         np.asarray(0, np.uint8)], axis=d.int(-3, 2), opset_attribute=d.one(11, 13), fixed={1, 2, 3, 4})
        if name == "QLinearWhere":
            return make([d.any((3, 4), np.bool_), d.ints((3, 4), np.uint8), scale(), d.ints((), np.uint8), d.ints((4,), np.uint8),
                         scale(), d.ints((), np.uint8), scale(), d.ints((), np.uint8)], fixed={2, 3, 5, 6, 7, 8})
        if name == "QLinearAveragePool":
            return make([d.ints((1, 2, 5, 6), np.uint8), scale(), d.ints((), np.uint8), scale(), d.ints((), np.uint8)],
                        kernel_shape=[2, 3], pads=d.maybe([0, 1, 1, 0]), count_include_pad=d.maybe(1), fixed={1, 2, 3, 4})
        if name in ("QLinearAdd", "QLinearMul"):
            t = d.one(np.int8, np.uint8)
            return make([d.ints((3, 4), t), scale(), d.ints((), t), d.ints((3, 4), t), scale(), d.ints((), t), scale(),
                         d.ints((), t)])
        if name in ("QLinearSigmoid", "QLinearLeakyRelu"):
            return make([d.ints((3, 4), np.uint8), scale(), d.ints((), np.uint8), scale(), d.ints((), np.uint8)],
                        alpha=0.1 if name == "QLinearLeakyRelu" else None, fixed={1, 2, 3, 4})
        if name == "EmbedLayerNormalization":
            ids = d.ints((b, steps), np.int32, 0, 8)
            return make([ids, d.ints((b, steps), np.int32, 0, 1), d.float((9, hidden)), d.float((6, hidden)),
                         d.float((2, hidden)), d.float((hidden,)), d.float((hidden,)), np.ones((b, steps), np.int32)],
                        outputs=2, epsilon=1e-5)
        if name == "RotaryEmbedding":
            return make([x, np.tile(np.arange(steps), (b, 1)).astype(np.int64), d.float((8, size // 2)),
                         d.float((8, size // 2))], interleaved=d.maybe(1))
        if name == "Attention":
            return make([x, d.float((hidden, 3 * hidden), scale=0.3), d.float((3 * hidden,)),
                         d.maybe(d.ints((b,), np.int32, 1, steps))], num_heads=heads, unidirectional=d.maybe(1))
        if name == "MultiHeadAttention":
            past = d.maybe(d.int(1, 3))
            inputs = [x, d.float((b, steps, hidden)), d.float((b, steps, hidden)), d.maybe(d.float((3 * hidden,))), None,
                      d.maybe(d.float((b, heads, steps, steps + (past or 0))))]
            if past:
                inputs += [d.float((b, heads, past, size)), d.float((b, heads, past, size))]
            return make(inputs, num_heads=heads, outputs=3 if past else 1, unidirectional=d.maybe(1))
        groups, past, size = 1, d.int(0, 4), 16
        steps = 1 if past else steps
        total = past + steps
        cos = d.float((total + 2, size // 2))
        part = lambda h: d.float((b, steps, h * size))
        return make([part(heads), part(groups), part(groups), d.float((b, groups, past, size)), d.float((b, groups, past, size)),
                     np.full((b,), total - 1, np.int32), np.asarray(total, np.int32), cos, d.float(cos.shape)],
                    num_heads=heads, kv_num_heads=groups, do_rotary=1, outputs=3, fixed={6},
                    local_window_size=d.maybe(2, 0.3))

    def tree(d, features, depth=3):
        """Lists of one tree's nodes: feature, value, mode, true and false child, by number."""
        nodes, level = [], [(None, None)]
        mode = d.one("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE")
        for step in range(depth + 1):
            below = []
            for parent, side in level:
                me = len(nodes)
                leaf = step == depth or (step and d.int(0, 3) == 0)
                nodes.append([d.int(0, features - 1), round(d.r.uniform(-1, 1), 3), "LEAF" if leaf else mode, 0, 0])
                if parent is not None:
                    nodes[parent][side] = me
                if not leaf:
                    below += [(me, 3), (me, 4)]
            level = below
        return nodes

    @maker("ai.onnx.ml.Scaler", "ai.onnx.ml.Binarizer", "ai.onnx.ml.Normalizer", "ai.onnx.ml.Imputer",
           "ai.onnx.ml.ArrayFeatureExtractor", "ai.onnx.ml.LabelEncoder", "ai.onnx.ml.OneHotEncoder",
           "ai.onnx.ml.FeatureVectorizer", "ai.onnx.ml.LinearRegressor", "ai.onnx.ml.LinearClassifier",
           "ai.onnx.ml.TreeEnsembleRegressor", "ai.onnx.ml.TreeEnsembleClassifier", "ai.onnx.ml.SVMRegressor",
           "ai.onnx.ml.SVMClassifier")
    def learned(d, full):
        domain, _, name = full.rpartition(".")
        make = lambda inputs, **more: Case(name, inputs, domain=domain, opset=17, **more)
        rows, n = d.int(1, 4), d.int(2, 5)
        x = d.float((rows, n))
        floats = lambda k: [float(v) for v in d.float((k,))]
        if name == "Scaler":
            return make([x], offset=floats(d.one(1, n)), scale=floats(d.one(1, n)))
        if name == "Binarizer":
            return make([x], threshold=0.3)
        if name == "Normalizer":
            return make([x], norm=d.one("MAX", "L1", "L2"))
        if name == "Imputer":
            x[d.np.uniform(size=x.shape) < 0.3] = np.nan if (missing := d.int(0, 1)) else 7
            return make([x], imputed_value_floats=floats(d.one(1, n)),
                        replaced_value_float=float("nan") if missing else 7.0)
        if name == "ArrayFeatureExtractor":
            return make([x, d.ints((d.int(1, 3),), np.int64, 0, n - 1)])
        if name == "LabelEncoder":
            return make([d.ints((rows, n), np.int64, 0, 6)], keys_int64s=[0, 2, 4, 5], values_floats=floats(4),
                        default_float=d.maybe(0.5))
        if name == "OneHotEncoder":
            return make([d.ints((rows,), np.int64, 0, 4)], cats_int64s=[0, 1, 3], zeros=1)
        if name == "FeatureVectorizer":
            return make([x, d.float((rows, 2))], inputdimensions=[n, 2])
        if name == "LinearRegressor":
            k = d.int(1, 3)
            return make([x], coefficients=floats(n * k), intercepts=d.maybe(floats(k)), targets=k)
        if name.startswith("SVM"):
            kernel = dict(kernel_type=d.one("LINEAR", "POLY", "RBF", "SIGMOID"), kernel_params=[0.3, 0.5, 2.0])
            if name == "SVMRegressor":
                k = d.int(1, 4)
                return make([x], coefficients=floats(k), support_vectors=floats(k * n), rho=floats(1), n_supports=k,
                            one_class=d.maybe(1), **kernel)
            classes = d.int(2, 4)
            counts = [d.int(1, 3) for _ in range(classes)]
            pairs = classes * (classes - 1) // 2
            proba = dict(prob_a=[-1.0] * pairs, prob_b=floats(pairs)) if d.int(0, 1) else {}
            return make([x], coefficients=floats((classes - 1) * sum(counts)), support_vectors=floats(sum(counts) * n),
                        vectors_per_class=counts, rho=floats(pairs), classlabels_ints=list(range(10, 10 + classes)),
                        outputs=2, **kernel, **proba)
        if name == "LinearClassifier":
            k = d.int(2, 4)
            return make([x], coefficients=floats(n * k), intercepts=floats(k), classlabels_ints=list(range(10, 10 + k)),
                        post_transform=d.one("NONE", "SOFTMAX", "LOGISTIC"), outputs=2)
        regressor = name == "TreeEnsembleRegressor"
        trees = [tree(d, n) for _ in range(d.int(1, 4))]
        flat = [(t, i, *node) for t, nodes in enumerate(trees) for i, node in enumerate(nodes)]
        leaves = [row for row in flat if row[4] == "LEAF"]
        k = d.int(1, 3) if regressor else d.int(2, 4)
        attributes = dict(
            nodes_treeids=[r[0] for r in flat], nodes_nodeids=[r[1] for r in flat],
            nodes_featureids=[r[2] for r in flat], nodes_values=[r[3] for r in flat],
            nodes_modes=[r[4] for r in flat], nodes_truenodeids=[r[5] for r in flat],
            nodes_falsenodeids=[r[6] for r in flat])
        prefix = "target" if regressor else "class"
        one = not regressor and k == 2 and d.int(0, 1)
        # Every leaf scores every class: what a class without a score means is not in the standard.
        places = [(r[0], r[1], i) for r in leaves for i in range(1 if one else k)]
        attributes.update({f"{prefix}_treeids": [p[0] for p in places], f"{prefix}_nodeids": [p[1] for p in places],
                           f"{prefix}_ids": [p[2] for p in places], f"{prefix}_weights": floats(len(places))})
        if regressor:
            single = k == 1
            return make([x], n_targets=k, aggregate_function=d.one("SUM", "AVERAGE", *(["MIN", "MAX"] if single else [])),
                        base_values=d.maybe(floats(k)), **attributes)
        # ONNX Runtime gives 0 and 1 for two classes of one score, whatever their labels.
        labels = list(range(k)) if one else list(range(10, 10 + k))
        return make([x], classlabels_int64s=labels, outputs=2,
                    post_transform=d.one("NONE", "LOGISTIC", *([] if one else ["SOFTMAX"])), **attributes)
