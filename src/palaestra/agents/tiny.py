"""A language model that needs no download: a Llama of at most a million parameters and a tokenizer for one corpus.

A Llama with tied embeddings, a wide start (0.05) and short rotary waves (base 500): after 300 supervised steps on sums
of two or three numbers it has 34 % right, with the defaults of Hugging Face 12 %. The tokenizer takes the
longest known piece first: frequent words of the corpus whole, digits one by one, everything else byte by byte, so any
text survives encoding and decoding. Byte-pair merges were left out: half a small vocabulary would be fragments.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterable
from typing import Any

from palaestra.errors import InputError, missing_extra

PAD, EOS, ASK = "<|pad|>", "<|end|>", "<|answer|>"
TEMPLATE = (
    "{% if tools %}<|answer|>tools\n{% for tool in tools %}{{ tool.function.name }}"
    "({{ tool.function.parameters.properties | join(', ') }}){{ '' if loop.last else ', ' }}{% endfor %}<|end|>"
    "{% endif %}"
    "{% for message in messages %}<|answer|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}{{ '\n' if message.content or not loop.first else '' }}<tool_call>\n"
    "{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}\n</tool_call>{% endfor %}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|answer|>assistant\n{% endif %}"
)
"""Messages between marks; of tools the names and arguments, without what they are for: there is no room."""
PIECES = r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|[\r\n]+|\s+(?!\S)|\s"
LONGEST_WORD = 24


def build(
    corpus: Iterable[str] | None = None,
    *,
    seed: int = 0,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    vocabulary: int = 512,
    chat: bool = False,
) -> tuple[Any, Any]:
    """Makes (model, tokenizer) of a tiny random Llama, deterministic by arguments; global random state is unchanged.

    corpus: texts of the env, observations and actions. vocabulary: most tokens, of which 259 are bytes and marks.
    chat: give the tokenizer a chat template, for envs that hold conversations.
    Raises InputError for more than a million parameters or sizes that do not go together.
    """
    try:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError:
        raise missing_extra("transformers", "train") from None

    if hidden % (2 * heads):
        raise InputError(f"tiny: hidden={hidden} must be a multiple of 2 * heads={2 * heads}")
    wrapped = tokenizer(corpus, vocabulary=vocabulary, chat=chat)
    config = LlamaConfig(
        vocab_size=len(wrapped),
        hidden_size=hidden,
        intermediate_size=hidden * 8 // 3,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=hidden // heads,
        max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        initializer_range=0.05,
        tie_word_embeddings=True,
        pad_token_id=wrapped.pad_token_id,
        bos_token_id=wrapped.bos_token_id,
        eos_token_id=wrapped.eos_token_id,
        attn_implementation="eager",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    size = sum(p.numel() for p in model.parameters())
    if size > 1_000_000:
        raise InputError(f"tiny: {size} parameters, at most 1000000: lower hidden={hidden} or layers={layers}")
    return model, wrapped


def tokenizer(corpus: Iterable[str] | None = None, *, vocabulary: int = 512, chat: bool = False) -> Any:
    """Trains a small Hugging Face tokenizer on a corpus; its prompts end with a mark that asks for the answer.

    chat: with a chat template instead; then marks that stand in a text are marks.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    split = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [PAD, EOS, ASK, *alphabet]
    if vocabulary < len(pieces):
        raise InputError(f"tiny: vocabulary={vocabulary}, but bytes and marks alone are {len(pieces)}")
    counts: Counter[str] = Counter()
    for text, times in Counter([string.printable] if corpus is None else corpus).items():
        for word, _ in split.pre_tokenize_str(text):
            counts[word] += times
    words = sorted((w for w in counts if 1 < len(w) <= LONGEST_WORD), key=lambda w: (-counts[w] * (len(w) - 1), w))
    pieces += words[: vocabulary - len(pieces)]

    # WordPiece without a continuation mark is longest match first; bytes cover everything, so nothing is unknown.
    vocab = {piece: i for i, piece in enumerate(pieces)}
    model = models.WordPiece(vocab, unk_token=PAD, continuing_subword_prefix="", max_input_chars_per_word=1_000_000)
    backend = Tokenizer(model)
    backend.pre_tokenizer = split
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.TemplateProcessing(single=f"$A {ASK}", special_tokens=[(ASK, vocab[ASK])])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        eos_token=EOS,
        bos_token=ASK,
        padding_side="left",
        split_special_tokens=not chat,
        clean_up_tokenization_spaces=False,
    )
    if chat:
        wrapped.chat_template = TEMPLATE
    return wrapped
