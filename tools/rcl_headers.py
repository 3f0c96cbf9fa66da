"""
Compare headers of rcl, rmw and rcutils with what `trt_ros/ros/dds/rcl.py` binds.

    python tools/rcl_headers.py /opt/ros/kilted/include
    python tools/rcl_headers.py rcl rmw rcutils     # checkouts of a branch, such as rolling

Prints each declaration that differs, and exits with 1 if one does.
"""

from collections.abc import Sequence
from pathlib import Path
import re
import sys

#: Declarations by header, without comments, macros and white space that do not matter.
BOUND = {
    'rcl/subscription.h': (
        'rcl_ret_t rcl_take_serialized_message( const rcl_subscription_t * subscription, '
        'rcl_serialized_message_t * serialized_message, rmw_message_info_t * message_info, '
        'rmw_subscription_allocation_t * allocation );',
    ),
    'rcl/publisher.h': (
        'rcl_ret_t rcl_publish_serialized_message( const rcl_publisher_t * publisher, '
        'const rcl_serialized_message_t * serialized_message, '
        'rmw_publisher_allocation_t * allocation );',
        'rmw_publisher_t * rcl_publisher_get_rmw_handle(const rcl_publisher_t * publisher);',
    ),
    'rcl/types.h': (
        '#define RCL_RET_OK RMW_RET_OK',
        '#define RCL_RET_SUBSCRIPTION_TAKE_FAILED 401',
        'typedef rmw_serialized_message_t rcl_serialized_message_t;',
    ),
    'rmw/rmw.h': (
        'rmw_ret_t rmw_get_gid_for_publisher(const rmw_publisher_t * publisher, rmw_gid_t * gid);',
    ),
    'rmw/types.h': (
        '{ const char * implementation_identifier; uint8_t data[RMW_GID_STORAGE_SIZE]; } '
        'rmw_gid_t;',
        # The id follows, at an offset that is found at run time.
        '{ rmw_time_point_value_t source_timestamp; rmw_time_point_value_t received_timestamp; '
        'uint64_t publication_sequence_number;',
    ),
    'rmw/serialized_message.h': ('typedef rcutils_uint8_array_t rmw_serialized_message_t;',),
    'rcutils/types/uint8_array.h': (
        '{ uint8_t * buffer; size_t buffer_length; size_t buffer_capacity; '
        'rcutils_allocator_t allocator; } rcutils_uint8_array_t;',
        'rcutils_ret_t rcutils_uint8_array_init( rcutils_uint8_array_t * uint8_array, '
        'size_t buffer_capacity, const rcutils_allocator_t * allocator);',
        'rcutils_ret_t rcutils_uint8_array_fini(rcutils_uint8_array_t * uint8_array);',
    ),
    'rcutils/allocator.h': (
        '{ void * (*allocate)(size_t size, void * state); '
        'void (* deallocate)(void * pointer, void * state); '
        'void * (*reallocate)(void * pointer, size_t size, void * state); '
        'void * (*zero_allocate)(size_t number_of_elements, size_t size_of_element, '
        'void * state); void * state; } rcutils_allocator_t;',
        'rcutils_allocator_t rcutils_get_default_allocator(void);',
    ),
    'rcutils/error_handling.h': (
        'char str[RCUTILS_ERROR_MESSAGE_MAX_LENGTH]; } rcutils_error_string_t;',
        'rcutils_error_string_t rcutils_get_error_string(void);',
        'void rcutils_reset_error(void);',
    ),
}


def differences(folders: Sequence[Path]) -> list[str]:
    """Return the headers that are missing, and the bound declarations that they lack."""
    found = []
    for name, declarations in BOUND.items():
        path = next((path for folder in folders for path in sorted(folder.rglob(name))), None)
        if path is None:
            found.append(f'{name} does not exist')
            continue
        text = _normalized(path.read_text())
        found += [
            f'{path} lacks: {each}' for each in declarations if _normalized(each) not in text
        ]
    return found


def _normalized(text: str) -> str:
    text = re.sub(r'/\*.*?\*/|//[^\n]*', ' ', text, flags=re.S)
    text = re.sub(r'\b(RC\w+|RMW)_(PUBLIC|WARN_UNUSED|PUBLIC_TYPE|DEPRECATED\w*)\b', ' ', text)
    # The name of a struct, and what macros of the visibility leave between tokens.
    return re.sub(r'\s+', '', re.sub(r'typedef struct \w*', '', text))


if __name__ == '__main__':
    problems = differences([Path(each) for each in sys.argv[1:]])
    print(*(problems or ['All bound declarations are there.']), sep='\n')
    sys.exit(bool(problems))
