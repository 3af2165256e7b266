// Must not compile: lab/io does not know lab/models.
#include "lab/io/json_file.h"
#include "lab/models/classifier.h"
