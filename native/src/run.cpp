#include "run.h"

#include <cstring>
#include <string>
#include <vector>

#include "array.h"

namespace ling3 {
namespace {

using Kernel = void (*)(const int64_t* args, int64_t begin, int64_t end);

PyTypeObject* numpy_array_type() {
  static PyObject* const type = nb::object(nb::module_::import_("numpy").attr("ndarray")).release().ptr();
  return reinterpret_cast<PyTypeObject*>(type);
}

// The words of one call, and the arrays held until it is over.
class Arguments {
 public:
  ~Arguments() {
    for (Py_buffer& view : views_) PyBuffer_Release(&view);
  }

  explicit Arguments(size_t count) {
    views_.reserve(count);
    words_.reserve(count * 3);
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  const int64_t* words() const { return words_.data(); }

  void add(PyObject* value, size_t index) {
    if (PyObject_TypeCheck(value, numpy_array_type())) {
      add_array(value, index);
    } else if (PyLong_Check(value)) {
      const int64_t word = PyLong_AsLongLong(value);
      if (word == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        refuse(name(index) + "the number does not fit 64 bits");
      }
      words_.push_back(word);
    } else if (PyFloat_Check(value)) {
      const double number = PyFloat_AS_DOUBLE(value);
      int64_t word;
      memcpy(&word, &number, sizeof word);
      words_.push_back(word);
    } else {
      throw nb::type_error(
          (name(index) + "an array, an int or a float is needed, got " + Py_TYPE(value)->tp_name).c_str());
    }
  }

 private:
  static std::string name(size_t index) { return "args[" + std::to_string(index) + "]: "; }

  void add_array(PyObject* value, size_t index) {
    Py_buffer view;
    if (PyObject_GetBuffer(value, &view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) != 0) {
      PyErr_Clear();
      refuse(name(index) + "the array is not C-contiguous or has no plain element type");
    }
    views_.push_back(view);
    if (view.format != nullptr && strchr(view.format, 'O') != nullptr)
      refuse(name(index) + "the array holds Python objects");
    words_.push_back(reinterpret_cast<int64_t>(view.buf));
    for (int axis = 0; axis < view.ndim; ++axis) words_.push_back(view.shape[axis]);
  }

  std::vector<Py_buffer> views_;
  std::vector<int64_t> words_;
};

}  // namespace

void run_kernel(Pool& pool, int64_t kernel_address, int64_t items, nb::list args, int64_t grain) {
  if (kernel_address == 0) refuse("kernel_address: must not be 0");
  if (items < 0) refuse("items: must not be negative");
  if (grain < 1) refuse("grain: must be at least 1");
  const size_t count = nb::len(args);
  Arguments arguments(count);
  for (size_t i = 0; i < count; ++i) arguments.add(PyList_GET_ITEM(args.ptr(), static_cast<Py_ssize_t>(i)), i);
  const Kernel kernel = reinterpret_cast<Kernel>(kernel_address);
  const int64_t* words = arguments.words();
  const nb::gil_scoped_release unlocked;
  pool.each(items, grain, [&](int64_t begin, int64_t end) { kernel(words, begin, end); });
}

}  // namespace ling3
