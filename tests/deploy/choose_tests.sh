# For try_arm.sh and try_windows.sh, which read this with their own arguments: which test programs are tried.
#
# `inside` are those that are compiled for the other machine, `outside` those of this one, which only start the
# program of the other. Both have the usual choice before; `all` takes every test program but $not_here.
case $* in
"") ;;
all)
    inside='' outside=''
    for file in tests/unit/test_*.c tests/golden/test_*.c tests/server/test_*.c; do
        test=${file#tests/} test=${test%.c}
        case " $(echo $not_here) " in *" $test "*) continue ;; esac
        if grep -qE '"(command|served)\.h"|execv' "$file"; then outside+=" $test"; else inside+=" $test"; fi
    done
    ;;
*) inside=$* outside='' ;;
esac

# in_folder FOLDER END NAME...: their paths.
in_folder() {
    local folder=$1 end=$2
    shift 2
    for each; do echo "$folder/$each$end"; done
}
