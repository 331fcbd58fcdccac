#!/usr/bin/env perl
# Make the whole test data of a clone out of tests/data: the files as links, and those that are only
# described (tests/data/README.md).
#
#   scripts/expand-test-data.pl FOLDER
#
# FOLDER is made anew, in one step at the end. Runs from the project's root.
use strict;
use warnings;
use Digest::SHA qw(sha256_hex);
use File::Basename qw(dirname);
use File::Find qw(find);
use File::Path qw(make_path remove_tree);
use JSON::PP;

my ($out) = @ARGV;
die "usage: expand-test-data.pl FOLDER\n" unless @ARGV == 1 && -d 'tests/data';
my $made = "$out.new-$$";

sub read_file {
    my ($path) = @_;
    open my $f, '<:raw', $path or die "$path: $!\n";
    local $/;
    return scalar <$f>;
}

sub write_file {
    my ($path, $bytes) = @_;
    open my $f, '>:raw', $path or die "$path: $!\n";
    print $f $bytes or die "$path: $!\n";
    close $f or die "$path: $!\n";
}

# ---- Recipes -------------------------------------------------------------------------------------

# Lines: "from FILE"; "hex BYTES"; "take OFFSET SIZE" of the source, or "take OFFSET SIZE STRIDE COUNT
# OUTER_STRIDE OUTER_COUNT", a loop in a loop; "sha256 DIGEST" of all.
sub follow_recipe {
    my ($path) = @_;
    my ($source, $bytes, $is_whole) = ('', '', 0);
    for my $line (split /\n/, read_file($path)) {
        my ($verb, @args) = split / /, $line;
        if ($verb eq 'from') {
            $source = read_file($args[0]);
        } elsif ($verb eq 'hex') {
            $bytes .= pack 'H*', $args[0];
        } elsif ($verb eq 'take') {
            my ($offset, $size, $stride, $count, $outer, $n_outer) = (@args, 0, 1, 0, 1)[0 .. 5];
            for my $i (0 .. $n_outer - 1) {
                my $begin = $offset + $i * $outer;
                $bytes .= substr $source, $begin + $_ * $stride, $size for 0 .. $count - 1;
            }
        } elsif ($verb eq 'sha256') {
            $is_whole = sha256_hex($bytes) eq $args[0];
        }
    }
    die "$path: the file it makes is another one\n" unless $is_whole;
    return $bytes;
}

# ---- Vocabularies --------------------------------------------------------------------------------

my %PACK = (0 => 'C', 1 => 'c', 2 => 'S<', 3 => 's<', 4 => 'L<', 5 => 'l<', 6 => 'f<', 7 => 'C',
    10 => 'Q<', 11 => 'q<', 12 => 'd<');
my ($I32, $F32, $STRING, $ARRAY) = (5, 6, 8, 9);
my $UNUSED = 5;    # the kind of a token

sub gguf_text {
    my ($text) = @_;
    utf8::encode($text);
    return pack('Q<', length $text) . $text;
}

sub gguf_array {
    my ($key, $type, $items) = @_;
    return gguf_text($key) . pack('L< L< Q<', $ARRAY, $type, scalar @$items) .
        join '', $type == $STRING ? map { gguf_text($_) } @$items : pack "($PACK{$type})*", @$items;
}

# A GGUF file with a vocabulary whose tokens keep their numbers; those that are not listed have names
# that no text holds.
sub make_vocabulary {
    my ($path) = @_;
    my $v = JSON::PP->new->utf8->decode(read_file($path));
    my $n = $v->{n_tokens};
    my @tokens = map { "<no $_>" } 0 .. $n - 1;
    my @types  = ($UNUSED) x $n;
    my @scores = (-1e6) x $n;
    my $has_scores = 0;
    for my $row (@{$v->{tokens}}) {
        my ($id, $text, $type, $score) = @$row;
        ($tokens[$id], $types[$id]) = ($text, $type);
        ($scores[$id], $has_scores) = ($score, 1) if defined $score;
    }
    my @values = map {
        my ($key, $type, $value) = @$_;
        gguf_text($key) . pack('L<', $type) .
            ($type == $STRING ? gguf_text($value) : pack $PACK{$type}, $value);
    } @{$v->{values}};
    push @values, gguf_array('tokenizer.ggml.tokens',     $STRING, \@tokens);
    push @values, gguf_array('tokenizer.ggml.token_type', $I32,    \@types);
    push @values, gguf_array('tokenizer.ggml.scores', $F32,    \@scores)     if $has_scores;
    push @values, gguf_array('tokenizer.ggml.merges', $STRING, $v->{merges}) if @{$v->{merges}};
    return pack('a4 L< Q< Q<', 'GGUF', 3, 0, scalar @values) . join '', @values;
}

# ---- All -----------------------------------------------------------------------------------------

# From a file in $made to the project's root.
my $up = '../' x (1 + $out =~ tr{/}{});

sub expand {
    my ($relative) = @_;
    my ($from, $to) = ("tests/data/$relative", "$made/$relative");
    make_path(dirname($to));
    if ($to =~ s/\.recipe$//) {
        write_file($to, follow_recipe($from));
    } elsif ($to =~ s/\.tokens\.json$/.gguf/) {
        write_file($to, make_vocabulary($from));
    } else {
        symlink $up . '../' x ($relative =~ tr{/}{}) . $from, $to or die "$to: $!\n";
    }
}

find({no_chdir => 1, wanted => sub { expand(s{^tests/data/}{}r) if -f && m{^tests/data/.*/} }},
    'tests/data');
write_file("$made/.made", '');
remove_tree($out);
rename $made, $out or die "$out: $!\n";
