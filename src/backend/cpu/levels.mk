# The CPU levels: their compiler flags, and which template is compiled for which of them.
#
# A template X_tmpl.c of this folder has one line below. The Makefile compiles it once for each of
# the levels there that its machine can have, with -DLEVEL=<level> and the level's flags, to
# X.<level>.o. What a template is told about its level is in level.h.
#
#   To add a template: write X_tmpl.c, and its line here.
#   To add a level: its flags, its name in the lists of what it has, and its block in level.h.

LEVELS_x86_64  := avx2 avx2vnni avx512 avx512vnni avx512vbmi avx512vbmi2
LEVELS_aarch64 := neon dotprod i8mm
# Every machine has this one, with no flags of its own.
LEVELS_all     := plain

FLAGS_avx2        := -mavx2 -mfma -mf16c -mbmi2 -ffp-contract=fast
FLAGS_avx2vnni    := $(FLAGS_avx2) -mavxvnni
FLAGS_avx512      := $(FLAGS_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
# Lines only for the debugger: following variables through unrolled loops doubles the time.
FLAGS_avx512vnni  := $(FLAGS_avx512) -mavx512vnni -g1
FLAGS_avx512vbmi  := $(FLAGS_avx512vnni) -mavx512vbmi
FLAGS_avx512vbmi2 := $(FLAGS_avx512vbmi) -mavx512vbmi2
FLAGS_neon        := -ffp-contract=fast
FLAGS_dotprod     := $(FLAGS_neon) -march=armv8.2-a+dotprod+fp16
FLAGS_i8mm        := $(FLAGS_neon) -march=armv8.2-a+dotprod+fp16+i8mm

# Levels that differ in their vectors of floats, and in their products of bytes.
LEVELS_OF_FLOATS := avx2 avx512 neon
LEVELS_OF_BYTES  := avx2 avx2vnni avx512vnni neon dotprod i8mm

#    template            levels
TMPL_attend         := $(LEVELS_OF_FLOATS) avx512vnni
TMPL_columns        := avx2 avx512vnni neon dotprod
TMPL_conv           := $(LEVELS_OF_FLOATS)
TMPL_delta          := $(LEVELS_OF_FLOATS)
TMPL_dense          := plain avx2 avx512
TMPL_lora           := $(LEVELS_OF_FLOATS)
TMPL_matmul_csr     := avx2 avx512
TMPL_matmul_float   := $(LEVELS_OF_FLOATS)
TMPL_matmul_iq      := $(LEVELS_OF_BYTES) avx512vbmi
TMPL_matmul_k       := $(LEVELS_OF_BYTES)
TMPL_matmul_lace    := $(LEVELS_OF_BYTES) avx512vbmi
TMPL_matmul_q32     := $(LEVELS_OF_BYTES)
TMPL_matmul_sparse  := avx2 avx512vbmi2 neon
TMPL_matmul_trellis := $(LEVELS_OF_BYTES)
TMPL_pack_tiles     := plain avx512
TMPL_peak           := $(LEVELS_OF_BYTES) avx512
TMPL_rope           := $(LEVELS_OF_FLOATS)
TMPL_rows           := $(LEVELS_OF_FLOATS)
TMPL_scan           := $(LEVELS_OF_FLOATS)
TMPL_trellis_search := plain avx2 avx512
