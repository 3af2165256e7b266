// Must not compile, because lab/io does not depend on lab/models.
#include "lab/io/json_file.h"
#include "lab/models/classifier.h"
