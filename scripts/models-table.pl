#!/usr/bin/env perl
# docs/models.md, made of what the tests say:
#
#     build/tests/golden/test_golden > golden.tap; build/tests/golden/test_encoders >> golden.tap
#     build/tests/golden/test_vision >> golden.tap
#     scripts/models-table.pl golden.tap > docs/models.md
#
# The columns of the card come from bench/results/golden-card.tap, the same tests on a GPU.
# --check FILE: every family of src/hf has its row in FILE, and every row its family.
use strict;
use warnings;

# What people call a family, by its model_type, and what is special about how it is computed.
my @names = (
    [llama => 'Llama 1 to 3, TinyLlama, SmolLM2, many others', 'the plain decoder'],
    [mistral => 'Mistral, Mistral Nemo, Ministral 8B', 'window'],
    [ministral3 => 'Ministral 3, Devstral 2', 'yarn, query temperature'],
    [mixtral => 'Mixtral', 'experts'],
    [granite => 'Granite 3', 'four factors'],
    [granitemoe => 'Granite 3 MoE', 'four factors, experts'],
    [granitemoehybrid => 'Granite 4', 'Mamba-2 and attention, experts'],
    [smollm3 => 'SmolLM3', 'layers without positions'],
    [qwen2 => 'Qwen2, Qwen2.5', 'biases'],
    [qwen2_moe => 'Qwen2-MoE', 'experts, a shared one behind a gate'],
    [qwen3 => 'Qwen3', 'norms of heads'],
    [qwen3_vl => 'Qwen3-VL', 'sees images: three axes of positions, DeepStack'],
    [qwen3_vl_text => 'Qwen3-VL (its text)', 'three axes of positions'],
    [qwen3_vl_moe => 'Qwen3-VL mixtures', 'sees images: as Qwen3-VL, experts'],
    [qwen3_vl_moe_text => 'Qwen3-VL mixtures (their text)', 'three axes of positions, experts'],
    [qwen3_moe => 'Qwen3-MoE', 'experts'],
    [qwen3_next => 'Qwen3-Next', 'gated delta net, experts, prediction layer'],
    [qwen3_5_text => 'Qwen3.5, Qwen3.6', 'gated delta net, prediction layer'],
    [qwen3_5 => 'Qwen3.5 with vision (its text)', 'gated delta net, prediction layer'],
    [qwen3_5_moe_text => 'Qwen3.5-MoE', 'gated delta net, experts, prediction layer'],
    [qwen3_5_moe => 'Qwen3.5-MoE with vision (its text)', 'gated delta net, experts, prediction layer'],
    [gemma2 => 'Gemma 2', 'window, soft caps'],
    [gemma3_text => 'Gemma 3', 'window, two rotary bases'],
    [gemma3 => 'Gemma 3 with vision', 'sees images; window, two rotary bases'],
    [gemma3n_text => 'Gemma 3n', 'AltUp, LAuReL, shared keys and values, second embeddings'],
    [gemma3n => 'Gemma 3n with vision (its text)', 'as Gemma 3n'],
    [gemma4_text => 'Gemma 4', 'layers of two shapes, shared keys and values, second embeddings, experts beside the dense part'],
    [gemma4 => 'Gemma 4 with vision (its text)', 'as Gemma 4'],
    [phi => 'Phi-1.5, Phi-2', 'parallel parts, LayerNorm'],
    [phi3 => 'Phi-3, Phi-4', 'longrope'],
    [phimoe => 'Phi-3.5-MoE', 'SparseMixer, LayerNorm'],
    [olmo2 => 'OLMo 2', 'norms after'],
    [olmo3 => 'OLMo 3', 'norms after, window'],
    [olmoe => 'OLMoE', 'experts'],
    [gpt_oss => 'gpt-oss', 'sinks, experts in MXFP4'],
    [cohere => 'Command-R, Command-R+', 'parallel parts, LayerNorm'],
    [cohere2 => 'Command-R7B, Command-A', 'window, layers without positions'],
    [seed_oss => 'Seed-OSS', 'biases'],
    [exaone4 => 'EXAONE 4', 'norms after, window'],
    [apertus => 'Apertus', 'xIELU'],
    [arcee => 'Arcee AFM', 'squared ReLU'],
    [starcoder2 => 'StarCoder 2', 'LayerNorm, biases'],
    [stablelm => 'StableLM 2', 'LayerNorm, parallel parts in the 12B'],
    [nemotron => 'Nemotron, Minitron', 'LayerNorm, squared ReLU'],
    [nemotron_h => 'Nemotron-H, Nemotron 3', 'Mamba-2, attention, experts'],
    [falcon => 'Falcon', 'parallel parts, LayerNorm'],
    [falcon_h1 => 'Falcon-H1', 'Mamba-2 beside attention'],
    [mamba2 => 'Mamba-2', 'Mamba-2'],
    [lfm2 => 'LFM2', 'short convolutions'],
    [lfm2_moe => 'LFM2-MoE', 'short convolutions, experts'],
    [gpt2 => 'GPT-2', 'learned positions'],
    [gpt_neox => 'GPT-NeoX, Pythia', 'parallel parts, LayerNorm'],
    [glm4 => 'GLM-4', 'norms before and after'],
    [glm4_moe => 'GLM-4.5, GLM-4.6', 'sigmoid router with correction, prediction layer'],
    [glm4_moe_lite => 'GLM-4.7-Flash', 'latent attention, experts, prediction layer'],
    [ernie4_5 => 'ERNIE 4.5', 'rotation of pairs'],
    [ernie4_5_moe => 'ERNIE 4.5 MoE', 'experts, shared ones'],
    [hunyuan_v1_dense => 'Hunyuan', 'norms of heads behind the rotation'],
    [hunyuan_v1_moe => 'Hunyuan-A13B', 'experts'],
    [minimax_m2 => 'MiniMax-M2', 'sigmoid router with correction'],
    [dots1 => 'dots.llm1', 'sigmoid router with correction'],
    [deepseek_v2 => 'DeepSeek V2', 'latent attention, groups of experts'],
    [deepseek_v3 => 'DeepSeek V3, R1', 'latent attention, groups of experts, prediction layer'],
    [mistral4 => 'Mistral 4', 'latent attention, query temperature'],
    [llama4_text => 'Llama 4 (its text)', 'chunks, layers without positions, weighed inputs'],
    [llama4 => 'Llama 4 with vision (its text)', 'as Llama 4'],
    [bert => 'BERT, BGE, E5, MiniLM', 'encoder'],
    [nomic_bert => 'nomic-embed-text', 'encoder with rotation'],
    [modernbert => 'ModernBERT', 'encoder with windows'],
    ['xlm-roberta' => 'XLM-R, bge-m3, bge-reranker', 'encoder, reranker'],
    [roberta => 'RoBERTa', 'encoder, reranker'],
);

# model_type => architecture, from the list of families.
sub families {
    my %architecture;
    open my $list, '<', 'src/hf/families.def' or die "src/hf/families.def: $!\n";
    while (<$list>) {
        $architecture{$1} = $2 if /^X\(\w+, "([^"]+)", "[^"]+", "([^"]+)"\)/;
    }
    return \%architecture;
}

# name of a golden model => its model_type.
sub model_type {
    my ($name) = @_;
    for my $set (qw(../shared/golden ../shared/golden2 build/data/golden build/data/golden2)) {
        open my $in, '<', "$set/$name/config.json" or next;
        local $/;
        return $1 if <$in> =~ /"model_type":\s*"([^"]+)"/;
    }
    return undef;
}

# {model_type}{column} = 1 (all ways pass) or 0
sub results {
    my ($file, $prefix, $out) = @_;
    open my $in, '<', $file or return;
    while (<$in>) {
        next unless /^(not )?ok \d+ - ([^,]+), (directory|GGUF|converted)\b/;
        my $type = model_type($2) // next;
        my $column = $prefix . $3;
        $out->{$type}{$column} //= 1;
        $out->{$type}{$column} = 0 if $1;
        $out->{$type}{golden}{$2} = 1;
    }
}

my $families = families();
if (@ARGV == 2 && $ARGV[0] eq '--check') {
    open my $in, '<', $ARGV[1] or die "$ARGV[1]: $!\n";
    my (%rows, $wrong);
    while (<$in>) { $rows{$1} = 1 if /^\| [^|]+ \| `([^`]+)` \|/; }
    for (sort keys %$families) { print "models: $_ has no row in $ARGV[1]\n" and $wrong = 1 unless $rows{$_}; }
    for (sort keys %rows) { print "models: $_ in $ARGV[1] is no family\n" and $wrong = 1 unless $families->{$_}; }
    print "models: " . keys(%rows) . " families have their rows\n" unless $wrong;
    exit($wrong ? 1 : 0);
}

my %found;
results($_, '', \%found) for @ARGV;
results('bench/results/golden-card.tap', 'card ', \%found);
my %known = map { $_->[0] => $_ } @names;
print <<'END';
# Models

Families that lace runs, and what is proven of each. "golden" means: a tiny random model of that family gives
the reference's logits (Hugging Face transformers, float32) to a squared error of 1e-9 in one batch, in batches of
seven, token by token, with two sequences interleaved, forked and cut back, and restored from a snapshot; the greedy
tokens follow, also of a text that had to give way to another, or whose beginning was known; encoders their hidden states.
(Qwen3-Next and the mixtures of Qwen3.5 have 4e-9: `tests/golden/test_golden.c` says why.) "converted"
means that the file which `lace convert` writes of the directory does so too. "card": on an H200, with
floats in the cache, the GGUF file's logits are those of the CPU to 1e-6, token by token, in eights and in
batches. An empty field was not tried. Of models that see images, an image's rows and the logits of a prompt with one in
it are the reference's, with the vision tower from the directory and from an mmproj file; the tower runs on the CPU, the model on any device.
Mixtures of Qwen3-VL are held to the results of the golden Qwen3-VL, whose feed-forward parts are made over into experts
(`tests/vl_mixture.h`).

This page is made of the tests' own output: `scripts/models-table.pl`.

| family | model_type | GGUF architecture | what is special | directory | GGUF | converted | card |
| --- | --- | --- | --- | --- | --- | --- | --- |
END
for my $type (sort { lc($known{$a}[1] // $a) cmp lc($known{$b}[1] // $b) } keys %$families) {
    my $r = $found{$type} // {};
    my @cells = map { defined $r->{$_} ? ($r->{$_} ? 'golden' : 'FAILS') : '' } 'directory', 'GGUF', 'converted', 'card GGUF';
    printf "| %s | `%s` | `%s` | %s | %s |\n", $known{$type}[1] // $type, $type, $families->{$type},
        $known{$type}[2] // '', join(' | ', @cells);
}
