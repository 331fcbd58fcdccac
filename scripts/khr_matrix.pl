#!/usr/bin/perl
# Rewrites SPV_NV_cooperative_matrix as SPV_KHR_cooperative_matrix: khr_matrix.pl in.spv out.spv
#
# Compilers of stable distributions know the former only, devices other than NVIDIA's the latter only.
# Instructions are the same but for the order of their operands, and a type of KHR's says which operand of
# a product it is. Our shaders say so by the constants that give a matrix its sizes: those with the numbers
# 10 and 11 are of the first, 12 and 13 of the second, 14 and 15 of the sum.
use strict;
use warnings;

die "khr_matrix.pl in.spv out.spv\n" if @ARGV != 2;
open my $in, '<:raw', $ARGV[0] or die "$ARGV[0]: $!\n";
my @w = unpack 'V*', do { local $/; <$in> };
die "$ARGV[0] is not SPIR-V\n" if @w < 6 || $w[0] != 0x07230203;

my $to_khr = 5358 - 4456; # what NVIDIA's opcodes are larger by
my ($type, $load, $store, $multiply, $length) = (5358 .. 5362);
my @number = map { $w[3] + $_ } 0 .. 2; # ids of constants 0, 1, 2
my (%spec, %is_true, $has_numbers);
my @out = (@w[0 .. 2], $w[3] + 3, $w[4]);
for (my $i = 5; $i < @w;) {
    my ($n, $op) = ($w[$i] >> 16, $w[$i] & 0xffff);
    die "$ARGV[0] is damaged\n" if $n == 0 || $i + $n > @w;
    my @o = @w[$i .. $i + $n - 1];
    $i += $n;
    $spec{$o[1]} = $o[3] if $op == 71 && $o[2] == 1; # OpDecorate SpecId
    $is_true{$o[2]} = 1 if $op == 41;               # OpConstantTrue
    $o[1] = 6022 if $op == 17 && $o[1] == 5357;     # OpCapability
    if ($op == 10 && pack('V*', @o[1 .. $#o]) =~ /^SPV_NV_cooperative_matrix\0/) {
        @o = ($o[0], unpack 'V*', pack 'a28', 'SPV_KHR_cooperative_matrix');
    } elsif ($op == $type) {
        my $use = ($spec{$o[4]} // 0) - 10;
        die "a matrix has rows that are no constant of 10 to 15\n" if $use < 0 || $use > 5;
        @o = (7 << 16 | $op - $to_khr, @o[1 .. 5], $number[$use >> 1]);
    } elsif ($op == $load) { # type, result, pointer, stride, by columns -> pointer, layout, stride
        @o = ($n << 16 | $op - $to_khr, @o[1 .. 3], $number[$is_true{$o[5]} // 0], $o[4], @o[6 .. $#o]);
    } elsif ($op == $store) { # pointer, object, stride, by columns -> pointer, object, layout, stride
        @o = ($n << 16 | $op - $to_khr, @o[1 .. 2], $number[$is_true{$o[4]} // 0], $o[3], @o[5 .. $#o]);
    } elsif ($op == $multiply || $op == $length) {
        $o[0] = $n << 16 | $op - $to_khr;
    }
    push @out, @o;
    if ($op == 21 && $o[2] == 32 && !$has_numbers) { # OpTypeInt
        push @out, 4 << 16 | 43, $o[1], $number[$_], $_ for 0 .. 2;
        $has_numbers = 1;
    }
}
open my $to, '>:raw', $ARGV[1] or die "$ARGV[1]: $!\n";
print $to pack 'V*', @out;
close $to or die "$ARGV[1]: $!\n";
