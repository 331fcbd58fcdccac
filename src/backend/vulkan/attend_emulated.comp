/* Attention of many tokens with matrices that are emulated, for checks. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define EMULATED
#include "attend_matrices.glsl"
