/* Products of many rows with matrices that are emulated, for checks. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define MATRICES
#define EMULATED
#include "many.glsl"
