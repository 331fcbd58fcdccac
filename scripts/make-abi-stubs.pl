#!/usr/bin/perl
# A library of empty functions with the prototypes of lace.h, whose debug information is the interface
# and nothing else: abidw reads that of the whole library for all its private types, too.
#
#   scripts/make-abi-stubs.pl include/lace.h >stubs.c
use strict;
use warnings;

local $/;
my $source = <>;
$source =~ s{/\*.*?\*/}{ }gs;
$source =~ s{\\\n}{ }g;
$source =~ s{^#.*$}{}gm;
$source =~ s{extern "C" \{}{}g;
print "#include \"lace.h\"\n";
my $depth = 0;
for my $part (split /(?<=[;{}])/, $source) {
    # A prototype: outside of braces, and no type.
    if ($depth == 0 && $part !~ /typedef/ && $part =~ /^\s*([\w\s\*]+\blace_\w+\(.*\));$/s) {
        (my $prototype = $1) =~ s/\s+/ /g;
        print "$prototype { for (;;); }\n";
    }
    $depth += () = $part =~ /\{/g;
    $depth -= () = $part =~ /\}/g;
}
