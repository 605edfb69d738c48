/* The variadic half of gaspi_printf. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void unipgas_gaspi_print (const char *text);

__attribute__ ((visibility ("hidden"))) void
unipgas_gaspi_vprintf (const char *format, ...)
{
  char line[1024];
  char *text = line;
  va_list args;
  int length;

  if (format == NULL)
    return;
  va_start (args, format);
  length = vsnprintf (line, sizeof line, format, args);
  va_end (args);
  if (length < 0)
    return;
  if ((size_t)length >= sizeof line)
    {
      text = malloc ((size_t)length + 1);
      if (text == NULL)
        return;
      va_start (args, format);
      vsnprintf (text, (size_t)length + 1, format, args);
      va_end (args);
    }
  unipgas_gaspi_print (text);
  if (text != line)
    free (text);
}
