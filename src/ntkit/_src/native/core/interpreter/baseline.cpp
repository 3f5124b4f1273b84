#define NTKIT_TARGET baseline
#include "execute.inc"
