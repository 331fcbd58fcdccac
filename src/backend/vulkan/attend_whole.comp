/* Rotation, cache and attention of tokens of different sequences, in one launch. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define WHOLE
#include "attend_parts.glsl"
