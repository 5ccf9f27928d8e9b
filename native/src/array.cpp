#include "array.h"

#include <cstring>

namespace ling3 {
namespace {

std::string text(const int64_t* begin, const int64_t* end) {
  std::string result = "[";
  for (const int64_t* size = begin; size != end; ++size) {
    if (size != begin) result += ", ";
    result += *size < 0 ? "any" : std::to_string(*size);
  }
  return result + "]";
}

}  // namespace

void refuse(const std::string& message) { throw nb::value_error(message.c_str()); }

Array::Array(nb::handle object, const char* name, const ElementType& type, int rank, Access access) : name_(name) {
  const std::string wanted =
      std::string(name) + ": a C-contiguous " + type.name + " array with " + std::to_string(rank) + " axes is needed";
  if (PyObject_GetBuffer(object.ptr(), &view_,
                         PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (access == writes ? PyBUF_WRITABLE : 0)) != 0) {
    PyErr_Clear();
    refuse(wanted + (access == writes ? ", and it must be writable" : ""));
  }
  const char* format = view_.format == nullptr ? "B" : view_.format;
  const bool matches =
      format[0] != '\0' && format[1] == '\0' && strchr(type.codes, format[0]) != nullptr && view_.itemsize == type.size;
  if (!matches || view_.ndim != rank) {
    const std::string got =
        std::string(", got element type '") + format + "' with " + std::to_string(view_.ndim) + " axes";
    PyBuffer_Release(&view_);
    refuse(wanted + got);
  }
}

void Array::refuse_shape(const std::string& what) const {
  const std::string message =
      std::string(name_) + ": " + what + ", got " +
      text(reinterpret_cast<const int64_t*>(view_.shape), reinterpret_cast<const int64_t*>(view_.shape) + view_.ndim);
  refuse(message);
}

void Array::expect(std::initializer_list<int64_t> shape) const {
  int axis = 0;
  for (int64_t size : shape) {
    if (size >= 0 && size != view_.shape[axis])
      refuse_shape("shape " + text(shape.begin(), shape.end()) + " is needed");
    ++axis;
  }
}

}  // namespace ling3
