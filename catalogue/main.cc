#include "catalogue/catalogue_tool.h"

int main(int argc, char** argv) { return coppice::catalogue::CatalogueMain(argc, argv); }
