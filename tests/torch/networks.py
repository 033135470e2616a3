"""Networks of torchvision, timm and transformers on Telegrad beside eager, with random weights.

  python3 tests/torch/networks.py [--telegradd PROGRAM] [--train] [--list] [NAME...]

Each network is the package's own class in a small configuration of its real architecture. It is compiled with
torch.compile(backend="telegrad") as a program would, graph breaks allowed, and its results are compared with eager's in
the same process; with --train also the gradient of every parameter. NAME... takes the networks whose names contain one
of them. Packages that are not installed are left out and named. Exit code 0: all agree, 1: not all, 77: torch is not
installed.
"""

import argparse
import contextlib
import importlib
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import support

try:
    import torch
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

IMAGE = 64
WORDS, LENGTH = 96, 12
SMALL = {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
         "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

# Of torchvision: name of the function, and what it is called with.
VISION = {
    "resnet18": {}, "resnet50": {}, "resnext50_32x4d": {}, "wide_resnet50_2": {}, "densenet121": {}, "vgg11_bn": {},
    "mobilenet_v2": {}, "mobilenet_v3_small": {}, "efficientnet_b0": {}, "efficientnet_v2_s": {}, "mnasnet0_5": {},
    "squeezenet1_1": {}, "shufflenet_v2_x0_5": {}, "regnet_y_400mf": {}, "convnext_tiny": {}, "swin_t": {}, "swin_v2_t": {},
    "vit_b_16": {"image_size": IMAGE, "num_classes": 10}, "alexnet": {}, "googlenet": {"init_weights": False, "aux_logits": False},
    "maxvit_t": {}}
SEGMENTATION = {"fcn_resnet50": {"weights_backbone": None}, "lraspp_mobilenet_v3_large": {"weights_backbone": None},
                "deeplabv3_mobilenet_v3_large": {"weights_backbone": None}}
SIZES = {"alexnet": 96, "vgg11_bn": 64, "maxvit_t": 224, "googlenet": 96}
# Of transformers: the class of the model, its configuration's, and what differs from SMALL.
LANGUAGE = {
    "BertModel": ("BertConfig", {}), "RobertaModel": ("RobertaConfig", {}), "ElectraModel": ("ElectraConfig", {}),
    "AlbertModel": ("AlbertConfig", {}), "DebertaV2Model": ("DebertaV2Config", {}), "MPNetModel": ("MPNetConfig", {}),
    "DistilBertModel": ("DistilBertConfig", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}),
    "GPT2LMHeadModel": ("GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", {}), "OPTForCausalLM": ("OPTConfig", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    "LlamaForCausalLM": ("LlamaConfig", {"num_key_value_heads": 2}), "MistralForCausalLM": ("MistralConfig", {"num_key_value_heads": 2}),
    "Qwen2ForCausalLM": ("Qwen2Config", {"num_key_value_heads": 2}), "Qwen3ForCausalLM": ("Qwen3Config", {"num_key_value_heads": 2}),
    "GemmaForCausalLM": ("GemmaConfig", {"num_key_value_heads": 2, "head_dim": 8}), "Phi3ForCausalLM": ("Phi3Config", {"num_key_value_heads": 2}),
    "BloomForCausalLM": ("BloomConfig", {"n_layer": 2, "n_head": 4}), "FalconForCausalLM": ("FalconConfig", {}),
    "MixtralForCausalLM": ("MixtralConfig", {"num_key_value_heads": 2, "num_local_experts": 2}), "MambaForCausalLM": ("MambaConfig", {"state_size": 4})}


def vision(name, arguments, models):
    size = SIZES.get(name, IMAGE)
    return getattr(models, name)(weights=None, **arguments), (torch.randn(1, 3, size, size),), {}


def language(name, configuration, arguments, transformers):
    config = getattr(transformers, configuration)(**(SMALL | arguments))
    if hasattr(config, "use_cache"): config.use_cache = False
    ids = torch.randint(3, WORDS, (1, LENGTH))
    return getattr(transformers, name)(config), (ids,), {}


def encoder_decoder(name, transformers):
    if name == "T5ForConditionalGeneration":
        config = transformers.T5Config(vocab_size=WORDS, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, use_cache=False,
                                       decoder_start_token_id=0)
    else:
        config = transformers.BartConfig(vocab_size=WORDS, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                                         decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=64,
                                         use_cache=False)
    ids = torch.randint(3, WORDS, (1, LENGTH))
    return getattr(transformers, name)(config), (), {"input_ids": ids, "decoder_input_ids": ids[:, :5]}


def whisper(transformers):
    config = transformers.WhisperConfig(vocab_size=WORDS, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                                        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, num_mel_bins=16,
                                        max_source_positions=20, max_target_positions=32, use_cache=False, pad_token_id=0,
                                        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    return transformers.WhisperForConditionalGeneration(config), (), {
        "input_features": torch.randn(1, 16, 40), "decoder_input_ids": torch.randint(3, WORDS, (1, 5))}


def clip(transformers):
    part = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.CLIPConfig(text_config=part | {"vocab_size": WORDS, "max_position_embeddings": 32, "eos_token_id": 2},
                                     vision_config=part | {"image_size": 32, "patch_size": 8}, projection_dim=16)
    return transformers.CLIPModel(config), (), {"input_ids": torch.randint(3, WORDS, (2, 7)), "pixel_values": torch.randn(2, 3, 32, 32)}


def timm_model(name, timm):
    size = 224 if name.endswith("224") or "levit" in name else IMAGE
    return timm.create_model(name, pretrained=False, num_classes=10), (torch.randn(1, 3, size, size),), {}


TIMM = ["resnet10t", "mobilenetv3_small_050", "tf_efficientnet_lite0", "ghostnet_050", "hardcorenas_a", "repvgg_a0", "edgenext_xx_small",
        "mixer_s32_224", "levit_128s", "mobilevit_xxs", "convmixer_768_32", "poolformer_s12"]


def networks():
    """Name, and a function that makes the network and its arguments."""
    missing = []

    def package(name):
        try:
            return importlib.import_module(name)
        except ImportError as error:
            missing.append(f"{name}: {error}")
            return None

    found = []
    if (models := package("torchvision.models")) is not None:
        found += [(name, lambda n=name, a=arguments: vision(n, a, models)) for name, arguments in VISION.items()]
        found += [(name, lambda n=name, a=arguments: vision(n, a, models.segmentation)) for name, arguments in SEGMENTATION.items()]
    if (transformers := package("transformers")) is not None:
        found += [(name, lambda n=name, c=config, a=arguments: language(n, c, a, transformers))
                  for name, (config, arguments) in LANGUAGE.items() if hasattr(transformers, name)]
        found += [(name, lambda n=name: encoder_decoder(n, transformers)) for name in ("T5ForConditionalGeneration", "BartForConditionalGeneration")]
        found += [("Whisper", lambda: whisper(transformers)), ("CLIPModel", lambda: clip(transformers))]
    if (timm := package("timm")) is not None:
        found += [(f"timm/{name}", lambda n=name: timm_model(n, timm)) for name in TIMM]
    return found, missing


def tensors(result):
    """All tensors of a model's result, whatever it is made of."""
    if isinstance(result, torch.Tensor): return [result]
    if isinstance(result, dict): return [t for value in result.values() for t in tensors(value)]
    if isinstance(result, (list, tuple)): return [t for value in result for t in tensors(value)]
    return []


def distance(got, want):
    """The largest difference, in parts of the largest magnitude that is wanted in that tensor. One that is a millionth of
    the largest of all is rounding: softmax gives the bias of attention's keys no gradient, for example."""
    worst = 0.0
    floor = max([1e-30, *(1e-6 * t.detach().double().abs().max().item() for t in want if t.numel())])
    for a, b in zip(got, want, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype: return float("inf")
        if b.numel() == 0: continue
        a, b = a.detach().double(), b.detach().double()
        worst = max(worst, ((a - b).abs().max() / b.abs().max().clamp(min=floor)).item())
    return worst


def gradients(model, results):
    # Weights that differ: the mean square of what a norm has put out has no gradient.
    loss = sum((t.float() * torch.arange(t.numel()).sin().reshape(t.shape)).sum()
               for t in results if t.is_floating_point() and t.requires_grad)
    model.zero_grad()
    loss.backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def compare(make, train, limit):
    """Whether the two agree, and what there is to say."""
    torch.manual_seed(11)
    torch._dynamo.reset()
    model, inputs, named = make()
    model.eval()
    start = time.monotonic()
    compiled = torch.compile(model, backend="telegrad")
    with contextlib.nullcontext() if train else torch.no_grad():
        got, want = tensors(compiled(*inputs, **named)), tensors(model(*inputs, **named))
    worst = distance(got, want)
    text = f"{len(want)} results, error {worst:.0e}"
    if train:
        ours, theirs = gradients(model, got), gradients(model, want)
        worst = max(worst, distance(ours, theirs))
        text += f", {len(theirs)} gradients, error {worst:.0e}"
    return worst <= limit, f"{text}, {time.monotonic() - start:.1f} s"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--telegradd", default=support.DAEMON, help="the daemon's program")
    parser.add_argument("--train", action="store_true", help="compare gradients, too")
    parser.add_argument("--list", action="store_true", help="print the names only")
    parser.add_argument("--limit", type=float, default=1e-3, help="largest error, in parts of the largest magnitude")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    found, missing = networks()
    chosen = [(name, make) for name, make in found if not args.names or any(part in name for part in args.names)]
    for text in missing: print(f"left out: {text}")
    if args.list:
        print(*(name for name, _ in chosen), sep="\n")
        return 0
    support.DAEMON = args.telegradd
    daemon = support.Daemon()
    os.environ["TELEGRAD_ADDRESS"] = daemon.address
    import telegrad.torch  # noqa: F401  registers the backend
    failed = 0
    try:
        for name, make in chosen:
            try:
                good, text = compare(make, args.train, args.limit)
            except Exception as error:  # pylint: disable=broad-except  a row of the table says what it was
                good, text = False, f"{type(error).__name__}: {str(error).strip()[:600]}"
            failed += not good
            print(f"{'ok  ' if good else 'FAIL'} {name}: {text}", flush=True)
    finally:
        daemon.stop()
    print(f"{len(chosen) - failed} of {len(chosen)} networks agree with eager")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
