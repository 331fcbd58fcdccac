/* Attention of many tokens by cooperative matrices, for devices that have them. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "attend_matrices.glsl"
