// Includes the header of every operation of operations.def.
#pragma once

#include "server/operations/alloc.h"
#include "server/operations/copy.h"
#include "server/operations/free.h"
#include "server/operations/has.h"
#include "server/operations/import.h"
#include "server/operations/put.h"
#include "server/operations/read.h"
#include "server/operations/receive.h"
#include "server/operations/run.h"
#include "server/operations/send.h"
#include "server/operations/sync.h"
#include "server/operations/write.h"
