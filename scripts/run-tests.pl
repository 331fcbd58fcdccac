#!/usr/bin/env perl
# Run TAP programs with the engine of `prove`; end with the names of skipped cases and with
# "N passed, N failed, N skipped".
#
#   scripts/run-tests.pl [--jobs N] PROGRAM...
#
# A program that crashes or stops before its plan counts as one more failure; so does one that hangs:
# it is ended after 30 minutes, which none takes even under sanitizers.
use strict;
use warnings;
use TAP::Harness;

my $jobs = 1;
if (@ARGV > 1 && $ARGV[0] eq '--jobs') {
    shift;
    $jobs = shift;
}
die "run-tests.pl: no test programs\n" unless @ARGV;

my $harness = TAP::Harness->new({
    exec     => ['timeout', '--kill-after=10', '1800'],
    jobs     => $jobs,
    color    => -t STDOUT && !$ENV{NO_COLOR} ? 1 : 0,
    failures => 1,
    comments => 1,
    timer    => 1,
});
my @skipped;
$harness->callback(made_parser => sub {
    my ($parser, $job) = @_;
    $parser->callback(test => sub {
        my ($case) = @_;
        push @skipped, $job->[1] . ': ' . $case->description . ': ' . $case->explanation
            if $case->has_skip;
    });
});
my $result = $harness->runtests(map { m{/} ? $_ : "./$_" } @ARGV);

print "skipped: $_\n" for @skipped;
my $skipped = $result->skipped;
my $failed  = $result->failed;
for my $parser ($result->parsers) {
    $failed++ if !$parser->failed && ($parser->parse_errors || $parser->exit || $parser->wait);
}
my $passed = $result->passed - $skipped;
print "$passed passed, $failed failed, $skipped skipped\n";
exit($failed ? 1 : 0);
