/* Attention of few tokens in parts; attend_join.comp joins them. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "attend_parts.glsl"
